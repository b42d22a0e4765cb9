#pragma once

#include "dptk/comm/reduce_op.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void detail::refuse_reduction(DType dtype, const Reduction& reduction) {
    if (reduction.weight && !detail::has_weights(dtype))
        throw ArgumentError(detail::text("a weighted sum has no meaning for ", dtype_name(dtype)));
    throw ArgumentError(
        detail::text("ReduceOp::", reduction.name(), " has no meaning for ", dtype_name(dtype)));
}

}  // namespace DPTK_NAMESPACE
