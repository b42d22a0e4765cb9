#pragma once

#include "dptk/core/tensor.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE std::size_t element_count(std::span<const std::size_t> shape) {
    std::size_t count = 1;
    for (const std::size_t size : shape) {
        if (size != 0 && count > std::numeric_limits<std::size_t>::max() / size)
            throw ArgumentError(detail::text("the shape ", detail::shape_text(shape),
                                             " has more elements than std::size_t can count"));
        count *= size;
    }
    return count;
}

}  // namespace DPTK_NAMESPACE
