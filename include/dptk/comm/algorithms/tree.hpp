/// Binomial tree algorithms: log2(ranks) rounds, each of which sends the whole buffer. Best for small
/// buffers.
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::tree {

/// Sends the root's elements to all ranks. Blocks.
void broadcast(Messages& messages, const Buffer& data, int root);

/// Combines all ranks' elements into the root's buffer, in rank order. Other ranks' buffers are unchanged.
/// Blocks. For an average, the caller divides the sum.
void reduce(Messages& messages, const Buffer& data, const Reduction& reduction, int root);

/// Combines all ranks' elements in place: a tree reduce to rank 0, then a tree broadcast. Blocks. For an
/// average, the caller divides the sum.
void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::algorithms::tree

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/tree.ipp"
#endif
