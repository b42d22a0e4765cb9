/// Reductions in rank order, rounded once: each rank collects one slice of all ranks' buffers, combines it in
/// accumulation_dtype, and hands out the result. For 16-bit formats, and for functions of the user's, which
/// need only be associative.
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::slices {

/// output = this rank's slice of all ranks' inputs, combined. `input` is cut as `slices` says. An average is
/// divided.
void reduce_scatter(Messages& messages, const Slices& input, const Buffer& output,
                    const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::algorithms::slices

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/slices.ipp"
#endif
