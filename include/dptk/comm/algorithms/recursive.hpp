/// Recursive doubling and recursive halving (Rabenseifner) all-reduce: in each round, partners at distance 1,
/// 2, 4, ... exchange data. Doubling exchanges whole buffers in log2(ranks) rounds, and is for small buffers.
/// Halving exchanges only the part that is still needed, in 2 * log2(ranks) rounds: as little data as a ring,
/// in fewer rounds.
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::recursive {

/// Combines all ranks' elements in place, in rank order. Blocks. For an average, the caller divides the sum.
void all_reduce_by_doubling(Messages& messages, const Buffer& data, const Reduction& reduction);

/// Combines all ranks' elements in place: a reduce-scatter, which halves the exchanged part of the buffer in
/// each round, and an all-gather, which doubles this part in each round. Blocks. For an average, the caller
/// divides the sum. The operation must be commutative, and the number of ranks a power of two.
void all_reduce_by_halving(Messages& messages, const Buffer& data, const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::algorithms::recursive

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/recursive.ipp"
#endif
