#pragma once

#include "dptk/comm/serializer.hpp"

#include <cstdint>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void check_size(bool right, std::string_view bytes, std::size_t expected) {
    if (!right) throw FormatError(text(bytes.size(), " bytes where an object has ", expected));
}

DPTK_INLINE void append_item(std::string& bytes, std::string_view item) {
    bytes += MemorySerializer<std::uint64_t>::to_bytes(item.size());
    bytes += item;
}

DPTK_INLINE std::string_view take_item(std::string_view& bytes) {
    constexpr std::size_t prefix = sizeof(std::uint64_t);
    if (bytes.size() < prefix)
        throw FormatError(text(bytes.size(), " bytes where the size of an item has ", prefix));
    const auto size = MemorySerializer<std::uint64_t>::from_bytes(bytes.substr(0, prefix));
    bytes.remove_prefix(prefix);
    if (bytes.size() < size)
        throw FormatError(text("an item of ", size, " bytes, of which ", bytes.size(), " are there"));
    const std::string_view item = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return item;
}

}  // namespace DPTK_NAMESPACE::detail
