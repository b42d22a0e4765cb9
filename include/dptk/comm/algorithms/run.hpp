/// Carries a collective out: through the transport's own verb where it has one that fits, and otherwise over
/// send and recv, by the algorithms of comm/algorithms/. Every rank gets the same bits.
#pragma once

#include <cstddef>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace algorithms {

/// Copies what this rank gives to where it shall be, unless it is there.
void place(const Buffer& to, const Buffer& from);

/// Whether the reduction must be carried out by slices where the transport does not do it itself.
[[nodiscard]] bool needs_slices(DType dtype, const Reduction& reduction) noexcept;

/// What AllReduceAlgorithm::automatic stands for. A ring takes a message for each rank, whose latency counts
/// where they are small.
[[nodiscard]] AllReduceAlgorithm choose_all_reduce(std::size_t bytes, int ranks) noexcept;

/// In place.
void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction,
                AllReduceAlgorithm algorithm);

/// Into the root's buffer, in place; other ranks' memory stays as it is.
void reduce(Messages& messages, const Buffer& data, const Reduction& reduction, int root);

/// input holds size() slices of output's size.
void reduce_scatter(Messages& messages, const Buffer& input, const Buffer& output,
                    const Reduction& reduction);

/// The root's input is everybody's, in rank order.
void scatter(Messages& messages, const Buffer& input, const Buffer& output, int root);

/// The root's output is everybody's, in rank order.
void gather(Messages& messages, const Buffer& input, const Buffer& output, int root);

/// Part r of the input goes to rank r; part r of the output comes from it.
void all_to_all(Messages& messages, const Buffer& input, const Buffer& output);

/// Carries the call out over messages alone.
void over_messages(Messages& messages, const Collective& call,
                   AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic);

/// Whether the transport's own verbs reduce such elements by that operation.
template <Transport T>
[[nodiscard]] bool reduces_natively(DType dtype, const Reduction& reduction) {
    if constexpr (detail::HasReduces<T>) return T::reduces(dtype, reduction);
    return !needs_slices(dtype, reduction);
}

/// Carries the call out by the transport's own verb. Returns false where it has none that fits.
template <Transport T>
[[nodiscard]] bool natively(T& transport, const Collective& call) {
    if (reduces(call.verb) && !reduces_natively<T>(call.input.dtype, call.reduction)) return false;
    const bool here = transport.rank() == call.root;
    switch (call.verb) {
        case Verb::all_reduce:
            if constexpr (detail::HasAllReduce<T>) {
                place(call.output, call.input);
                transport.all_reduce(call.output, call.reduction);
                return true;
            }
            return false;
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
        case Verb::barrier:
            if constexpr (detail::HasBarrier<T>) {
                transport.barrier();
                return true;
            }
            return false;
        case Verb::allocate:
        case Verb::duplicate:
        case Verb::subgroup:
        case Verb::send:
        case Verb::recv: break;
    }
    return false;
}

/// Carries a call out. Input and output of all_to_all may be one buffer, and a sum may have weights.
template <Transport T>
void run(T& transport, const Collective& call, AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic) {
    if (call.verb == Verb::all_to_all && detail::overlap(call.input, call.output)) {
        const Scratch copy(call.input);
        detail::convert(copy.buffer(), call.input);
        Collective apart = call;
        apart.input = copy.buffer();
        return run(transport, apart, algorithm);
    }
    if (call.reduction.weight) {
        const Scratch weighted(call.input);
        detail::scale(weighted.buffer(), call.input.data, *call.reduction.weight);
        Collective plain = call;
        plain.input = weighted.buffer();
        plain.reduction = ReduceOp::sum;
        return run(transport, plain, algorithm);
    }
    if constexpr (detail::HasRun<T>) {
        transport.run(call, algorithm);
    } else {
        const bool chosen = call.verb == Verb::all_reduce && algorithm != AllReduceAlgorithm::automatic;
        if (!chosen && natively(transport, call)) return;
        MessagesOver<T> messages(transport);
        over_messages(messages, call, algorithm);
    }
}

}  // namespace algorithms

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/run.ipp"
#endif
