#pragma once

#include "dptk/train/detail/labeled_batch.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void throw_no_class(std::string_view label, std::size_t classes) {
    throw ArgumentError(
        text("Trainer: expected a label in [0, ", classes, "), the network's classes, found ", label));
}

DPTK_INLINE void throw_not_one_label(std::size_t count) {
    throw ArgumentError(text("Trainer: expected one label, found ", count));
}

DPTK_INLINE std::string other_input(std::span<const std::size_t> found, const Shape& input) {
    return text("Trainer: expected samples of shape ", shape_text(input), ", the network's input, found ",
                shape_text(found));
}

DPTK_INLINE void throw_other_input(std::span<const std::size_t> found, const Shape& input) {
    throw ArgumentError(other_input(found, input));
}

}  // namespace DPTK_NAMESPACE::detail
