/// Executes a collective over send and recv, by the algorithms of this folder. All ranks get bitwise
/// identical results.
#pragma once

#include <cstddef>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace algorithms {

/// Copies `from` to `to`, unless they are at the same address.
inline void place(const Buffer& to, const Buffer& from) {
    if (to.data != from.data) [[unlikely]]
        detail::convert(to, from);
}

/// Returns whether a reduction that the transport does not support natively requires the `slices` algorithm.
[[nodiscard]] bool needs_slices(DType dtype, const Reduction& reduction) noexcept;

/// Returns the algorithm that AllReduceAlgorithm::automatic selects: recursive doubling up to 64 KiB, since
/// it has the fewest rounds; recursive halving if bytes / ranks, the size of a message in a ring, is at most
/// 512 KiB, since latency would dominate a ring; and a ring for larger buffers.
[[nodiscard]] AllReduceAlgorithm choose_all_reduce(std::size_t bytes, int ranks) noexcept;

/// Combines all ranks' elements in place. For an average, also divides the sum.
void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction,
                AllReduceAlgorithm algorithm);

/// Combines all ranks' elements into the root's buffer, in place. For an average, also divides the sum. Other
/// ranks' buffers are unchanged.
void reduce(Messages& messages, const Buffer& data, const Reduction& reduction, int root);

/// Combines the inputs of all ranks. Each input holds size() slices of the size of `output`; rank r gets
/// slice r of the result. For an average, also divides the sum.
void reduce_scatter(Messages& messages, const Buffer& input, const Buffer& output,
                    const Reduction& reduction);

/// Sends part r of the root's input to rank r.
void scatter(Messages& messages, const Buffer& input, const Buffer& output, int root);

/// Collects the ranks' inputs in the root's output, in rank order.
void gather(Messages& messages, const Buffer& input, const Buffer& output, int root);

/// Sends part r of the input to rank r, and receives part r of the output from rank r.
void all_to_all(Messages& messages, const Buffer& input, const Buffer& output);

/// Executes the call.
void over_messages(Messages& messages, const Collective& call);

/// Whether the call's input must be copied first: if input and output of an all_to_all overlap, or if a sum
/// has a weight, by which the copy is multiplied.
[[nodiscard]] inline bool needs_copy(const Collective& call) noexcept {
    return call.reduction.weight ||
           ((call.verb == Verb::all_to_all || call.verb == Verb::all_to_all_uneven) &&
            detail::overlap(call.input, call.output));
}

/// Copies the input of a call that needs_copy(), and returns the call on the copy.
[[nodiscard]] Collective on_copy(const Collective& call, const Scratch& copy);

}  // namespace algorithms

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/run.ipp"
#endif
