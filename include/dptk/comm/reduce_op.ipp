#pragma once

#include "dptk/comm/reduce_op.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void detail::refuse_reduction(DType dtype, const Reduction& reduction) {
    if (reduction.weight && !detail::has_weights(dtype))
        throw ArgumentError(detail::text("a weighted sum is not defined for ", dtype_name(dtype),
                                         ": expected a floating-point or complex type"));
    throw ArgumentError(
        detail::text("ReduceOp::", reduction.name(), " is not defined for ", dtype_name(dtype)));
}

}  // namespace DPTK_NAMESPACE
