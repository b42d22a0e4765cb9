/// SafetensorsEntry: the name, type, shape and place of a tensor in a safetensors file; and UnreadableTensor.
#pragma once

#include <cstddef>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE {

/// A tensor of a safetensors file.
struct SafetensorsEntry {
    std::string name;          ///< The name, unique within the file.
    DType dtype = DType::f32;  ///< The type of the elements.
    Shape shape;               ///< The size of each dimension, outermost first.
    std::size_t offset = 0;    ///< The position of the first byte, from the start of the file.
    std::size_t count = 0;     ///< The number of elements.

    /// Returns the number of bytes.
    [[nodiscard]] std::size_t bytes() const noexcept { return count * dtype_size(dtype); }
};

/// A tensor of a safetensors file whose elements have a type that dptk does not have.
struct UnreadableTensor {
    std::string name;  ///< The name, unique within the file.
    std::string type;  ///< The format's name of the type, such as F8_E4M3.
    Shape shape;       ///< The size of each dimension, outermost first.
};

}  // namespace DPTK_NAMESPACE
