#pragma once

#include "dptk/comm/serializer.hpp"

#include <cstdint>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void check_size(bool is_valid, std::string_view bytes, std::size_t expected) {
    if (!is_valid)
        throw FormatError(
            text("expected ", expected, " bytes per object, got ", bytes.size(), " bytes in total"));
}

DPTK_INLINE void append_item(std::string& bytes, std::string_view item) {
    bytes += MemorySerializer<std::uint64_t>::to_bytes(item.size());
    bytes += item;
}

DPTK_INLINE std::string_view take_item(std::string_view& bytes) {
    constexpr std::size_t prefix = sizeof(std::uint64_t);
    if (bytes.size() < prefix)
        throw FormatError(text("expected ", prefix, " bytes for the size of an item, got ", bytes.size()));
    const auto size = MemorySerializer<std::uint64_t>::from_bytes(bytes.substr(0, prefix));
    bytes.remove_prefix(prefix);
    if (bytes.size() < size)
        throw FormatError(text("truncated item: expected ", size, " bytes, got ", bytes.size()));
    const std::string_view item = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return item;
}

DPTK_INLINE std::size_t take_number(std::string_view& bytes, std::size_t end) {
    if (bytes.empty()) throw FormatError(text("expected a number below ", end, ", got no bytes"));
    const auto number = static_cast<std::size_t>(static_cast<unsigned char>(bytes.front()));
    if (number >= end) throw FormatError(text("expected a number below ", end, ", got ", number));
    bytes.remove_prefix(1);
    return number;
}

DPTK_INLINE void check_all_read(std::string_view bytes) {
    if (!bytes.empty())
        throw FormatError(text("expected no bytes after the last element, got ", bytes.size()));
}

}  // namespace DPTK_NAMESPACE::detail
