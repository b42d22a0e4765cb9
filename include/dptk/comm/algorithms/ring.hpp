/// Ring algorithms: in each of (ranks - 1) rounds, every rank sends a slice to the next rank and receives
/// one from the previous rank. They are bandwidth-optimal: best for large buffers.
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::ring {

/// Sends each rank's slice to all ranks. On entry, slice r of rank r's buffer holds the elements of rank r.
/// Blocks.
void all_gather(Messages& messages, const Slices& slices);

/// Computes slice r of the result in slice r of rank r's buffer. On return, the other slices hold partial
/// results. Blocks. For an average, the caller divides the sum.
void reduce_scatter_in_place(Messages& messages, const Slices& slices, const Reduction& reduction);

/// Computes slice r of the result in `result` of rank r, which has room for the largest slice, and does not
/// overlap the input. Blocks. For an average, the caller divides the sum.
void reduce_scatter(Messages& messages, const Slices& input, const Buffer& result,
                    const Reduction& reduction);

/// Combines all ranks' elements in place: a ring reduce-scatter and a ring all-gather. Blocks. For an
/// average, the caller divides the sum. The operation must be commutative.
void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::algorithms::ring

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/ring.ipp"
#endif
