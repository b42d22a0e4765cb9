/// Recursive doubling and recursive halving (Rabenseifner) all-reduce: in each of log2(ranks) rounds,
/// partners at distance 1, 2, 4, ... exchange data. Doubling exchanges whole buffers, for small ones.
/// Halving exchanges only the part that is still needed: as little data as a ring, in fewer rounds.
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::recursive {

/// Combines all ranks' elements in place, in rank order. Blocks. For an average, the caller divides the sum.
void all_reduce_by_doubling(Messages& messages, const Buffer& data, const Reduction& reduction);

/// Combines all ranks' elements in place: a reduce-scatter, which halves the range of slices in each round,
/// and an all-gather, which doubles it again. Blocks. For an average, the caller divides the sum. The
/// operation must be commutative, and the number of ranks a power of two.
void all_reduce_by_halving(Messages& messages, const Buffer& data, const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::algorithms::recursive

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/recursive.ipp"
#endif
