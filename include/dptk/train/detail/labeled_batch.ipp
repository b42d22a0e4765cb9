#pragma once

#include "dptk/train/detail/labeled_batch.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void throw_no_class(std::int64_t label, std::size_t classes) {
    throw ArgumentError(
        text("Trainer: expected a label in [0, ", classes, "), the network's classes, found ", label));
}

DPTK_INLINE void throw_not_one_label(std::size_t count) {
    throw ArgumentError(text("Trainer: expected one label, found ", count));
}

DPTK_INLINE void throw_other_input(const Shape& found, const Shape& input) {
    throw ArgumentError(text("Trainer: expected samples of shape ", shape_text(input),
                             ", the network's input, found ", shape_text(found)));
}

}  // namespace DPTK_NAMESPACE::detail
