/// Binomial trees: log2(ranks) rounds, each with the whole buffer. Best for small buffers.
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::tree {

/// Sends the root's elements to all.
void broadcast(Messages& messages, const Buffer& data, int root);

/// Combines all ranks' elements into the root's, in rank order. Other ranks' memory stays as it is. An
/// average is not divided.
void reduce(Messages& messages, const Buffer& data, const Reduction& reduction, int root);

/// Up one tree and down another. An average is not divided.
void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::algorithms::tree

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/tree.ipp"
#endif
