/// FileArray, an array of any element type that was read from a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE {

/// An array of any element type. Elements are row-major, in host byte order.
struct FileArray {
    DType dtype = DType::u8;         ///< The type of each element.
    std::vector<std::size_t> shape;  ///< The sizes of the dimensions, outermost first.
    std::vector<std::byte> bytes;    ///< The bytes of all elements.
};

namespace detail {

/// Returns the elements of an array of u8.
[[nodiscard]] inline std::vector<std::uint8_t> to_u8(const FileArray& array) {
    std::vector<std::uint8_t> out(array.bytes.size());
    if (!out.empty()) std::memcpy(out.data(), array.bytes.data(), out.size());
    return out;
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE
