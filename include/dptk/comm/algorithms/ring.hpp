/// Rings: each rank sends to the next and receives from the one before, ranks - 1 times, one slice at a time.
/// Every element passes each link once: best for large buffers.
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::ring {

/// The slices of all ranks, to all; each rank's own is in its place.
void all_gather(Messages& messages, const Slices& slices);

/// Slice r of the sum arrives in slice r of rank r's buffer; the other slices hold parts of sums.
void reduce_scatter(Messages& messages, const Slices& slices, const Reduction& reduction);

/// Sums slices around the ring, then passes them around. An average is not divided. The operation must be
/// commutative.
void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::algorithms::ring

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/ring.ipp"
#endif
