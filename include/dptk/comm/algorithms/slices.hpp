/// Direct reduce-scatter in rank order, rounded once: each rank receives its slice of every other rank's
/// buffer, and combines the slices in accumulation_dtype. For f16 and bf16, and for user functions, which
/// need not be commutative.
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::slices {

/// Combines this rank's slice of all ranks' inputs into `output`. For an average, also divides the sum.
/// Blocks.
void reduce_scatter(Messages& messages, const Slices& input, const Buffer& output,
                    const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::algorithms::slices

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/slices.ipp"
#endif
