#pragma once

#include "dptk/comm/reduce_op.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void check_reduction(DType dtype, const Reduction& reduction) {
    const bool has_weights = is_floating(dtype) || is_complex(dtype);
    if (reduction.weight && !has_weights)
        throw ArgumentError(detail::text("a weighted sum has no meaning for ", dtype_name(dtype)));
    if (reduction.user != nullptr || is_meaningful(dtype, reduction.op)) return;
    throw ArgumentError(
        detail::text("ReduceOp::", reduction.name(), " has no meaning for ", dtype_name(dtype)));
}

}  // namespace DPTK_NAMESPACE
