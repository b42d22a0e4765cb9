/// Recursive doubling and halving: partners at distances 1, 2, 4, ... exchange, so that log2(ranks) rounds
/// serve all ranks at once. Doubling exchanges whole buffers (few rounds: small buffers), halving only what
/// is still needed (as little data as a ring, in fewer rounds).
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::recursive {

/// Combines all ranks' elements in place, in rank order. An average is not divided.
void all_reduce_by_doubling(Messages& messages, const Buffer& data, const Reduction& reduction);

/// Halves the range of slices that it works on in each round, down to the rank's own, and doubles it again.
/// An average is not divided. The operation must be commutative, and the number of ranks a power of two.
void all_reduce_by_halving(Messages& messages, const Buffer& data, const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::algorithms::recursive

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/recursive.ipp"
#endif
