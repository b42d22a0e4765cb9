/// Direct reduce-scatter in rank order, rounded once: each rank collects its slice of all ranks' buffers,
/// and combines it in accumulation_dtype. For 16-bit formats, and for user-defined operations, which need
/// only be associative.
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::slices {

/// Combines this rank's slice of all ranks' inputs into `output`. Blocks. Divides averages.
void reduce_scatter(Messages& messages, const Slices& input, const Buffer& output,
                    const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::algorithms::slices

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/slices.ipp"
#endif
