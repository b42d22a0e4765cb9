/// Chain algorithm: each rank receives segments from the rank after it, adds its own elements, and sends them
/// to the rank before it. No rank sends or receives more than the buffer: best for the largest buffers.
#pragma once

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms::chain {

/// Combines all ranks' elements into the root's buffer. Other ranks' buffers are unchanged. Blocks. For an
/// average, the caller divides the sum. The operation must be commutative.
void reduce(Messages& messages, const Buffer& data, const Reduction& reduction, int root);

}  // namespace DPTK_NAMESPACE::algorithms::chain

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/chain.ipp"
#endif
