/// Executes a collective, either by the transport's native verb, if the transport has one that supports the
/// call, or over send and recv by the algorithms of comm/algorithms/. All ranks get bitwise identical
/// results.
#pragma once

#include <cstddef>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/comm/detail/transport_members.hpp"
#include "dptk/comm/transport.hpp"
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

/// Executes the call over send and recv only.
void over_messages(Messages& messages, const Collective& call,
                   AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic);

/// Returns whether the transport's native verbs support the dtype and the operation.
template <Transport T>
[[nodiscard]] bool reduces_natively(DType dtype, const Reduction& reduction) {
    if constexpr (detail::HasReduces<T>) return T::reduces(dtype, reduction);
    return !needs_slices(dtype, reduction);
}

/// Executes the call by the transport's native verb. If the transport has no native verb that supports the
/// call, does nothing and returns false.
template <Transport T>
[[nodiscard, gnu::always_inline]] inline bool run_natively(T& transport, const Collective& call) {
    if (reduces(call.verb) && !reduces_natively<T>(call.input.dtype, call.reduction)) return false;
    if constexpr (detail::HasAllReduce<T>) {
        if (call.verb == Verb::all_reduce)
            [[likely]] {  // without the switch's jump, which is often mispredicted
            place(call.output, call.input);
            transport.all_reduce(call.output, call.reduction);
            return true;
        }
    }
    const bool here = transport.rank() == call.root;
    switch (call.verb) {
        case Verb::reduce:
            if constexpr (detail::HasReduce<T>) {
                if (here) place(call.output, call.input);
                transport.reduce(here ? call.output : call.input, call.reduction, call.root);
                return true;
            }
            return false;
        case Verb::broadcast:
            if constexpr (detail::HasBroadcast<T>) {
                transport.broadcast(call.output, call.root);
                return true;
            }
            return false;
        case Verb::all_gather:
            if constexpr (detail::HasAllGather<T>) {
                transport.all_gather(call.input, call.output);
                return true;
            }
            return false;
        case Verb::all_gather_uneven:
            if constexpr (detail::HasAllGatherUneven<T>) {
                transport.all_gather_uneven(call.input, call.output, call.counts);
                return true;
            }
            return false;
        case Verb::gather:
            if constexpr (detail::HasGather<T>) {
                transport.gather(call.input, call.output, call.root);
                return true;
            }
            return false;
        case Verb::scatter:
            if constexpr (detail::HasScatter<T>) {
                transport.scatter(call.input, call.output, call.root);
                return true;
            }
            return false;
        case Verb::reduce_scatter:
            if constexpr (detail::HasReduceScatter<T>) {
                transport.reduce_scatter(call.input, call.output, call.reduction);
                return true;
            }
            return false;
        case Verb::all_to_all:
            if constexpr (detail::HasAllToAll<T>) {
                transport.all_to_all(call.input, call.output);
                return true;
            }
            return false;
        case Verb::all_to_all_uneven:
            if constexpr (detail::HasAllToAllUneven<T>) {
                transport.all_to_all_uneven(call.input, call.output, call.counts, call.output_counts);
                return true;
            }
            return false;
        case Verb::barrier:
            if constexpr (detail::HasBarrier<T>) {
                transport.barrier();
                return true;
            }
            return false;
        case Verb::all_reduce:
        case Verb::allocate:
        case Verb::duplicate:
        case Verb::subgroup:
        case Verb::send:
        case Verb::recv:
        case Verb::probe: break;
    }
    return false;
}

/// Whether the call's input must be copied first: if input and output of an all_to_all overlap, or if a sum
/// has a weight, by which the copy is multiplied.
[[nodiscard]] inline bool needs_copy(const Collective& call) noexcept {
    return call.reduction.weight ||
           ((call.verb == Verb::all_to_all || call.verb == Verb::all_to_all_uneven) &&
            detail::overlap(call.input, call.output));
}

/// Copies the input of a call that needs_copy(), and returns the call on the copy.
[[nodiscard]] Collective on_copy(const Collective& call, const Scratch& copy);

/// Executes a call that needs_copy().
template <Transport T>
[[gnu::noinline]] void run_on_copy(T& transport, const Collective& call, AllReduceAlgorithm algorithm);

/// Executes a call. Blocks. Input and output of all_to_all may overlap, and a sum may have a weight.
template <Transport T>
[[gnu::always_inline]] inline void run(T& transport, const Collective& call,
                                       AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic) {
    if (needs_copy(call)) [[unlikely]]
        return run_on_copy(transport, call, algorithm);
    if constexpr (detail::HasRun<T>) {
        transport.run(call, algorithm);
    } else {
        const bool chosen = call.verb == Verb::all_reduce && algorithm != AllReduceAlgorithm::automatic;
        if (!chosen) [[likely]] {
            if (run_natively(transport, call)) [[likely]]
                return;
        }
        MessagesOver<T> messages(transport, call);
        over_messages(messages, call, algorithm);
    }
}

/// Executes a call like run(), and is not inlined: for all but the call that the program waits for.
template <Transport T>
[[gnu::noinline]] void run_out_of_line(T& transport, const Collective& call,
                                       AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic) {
    run(transport, call, algorithm);
}

template <Transport T>
void run_on_copy(T& transport, const Collective& call, AllReduceAlgorithm algorithm) {
    const Scratch copy(call.input);
    run_out_of_line(transport, on_copy(call, copy), algorithm);
}

}  // namespace algorithms

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/run.ipp"
#endif
