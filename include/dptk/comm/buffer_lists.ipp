#pragma once

#include "dptk/comm/buffer_lists.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE Reduction reduction_of(ReduceOp op) {
    return op;
}

}  // namespace DPTK_NAMESPACE::detail
