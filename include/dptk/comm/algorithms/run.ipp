#pragma once

#include "dptk/comm/algorithms/run.hpp"

#include <cstdint>
#include <vector>

#include "dptk/comm/algorithms/chain.hpp"
#include "dptk/comm/algorithms/recursive.hpp"
#include "dptk/comm/algorithms/ring.hpp"
#include "dptk/comm/algorithms/slices.hpp"
#include "dptk/comm/algorithms/tree.hpp"

namespace DPTK_NAMESPACE::algorithms {

/// Up to this size, algorithms minimize the number of rounds (latency) rather than the data sent
/// (bandwidth).
inline constexpr std::size_t small_bytes = std::size_t{64} << 10;

[[nodiscard]] constexpr bool is_power_of_two(int number) noexcept {
    return (number & (number - 1)) == 0;
}

DPTK_INLINE bool needs_slices(DType dtype, const Reduction& reduction) noexcept {
    return reduction.user != nullptr || detail::needs_wide_accumulation(dtype, reduction);
}

DPTK_INLINE AllReduceAlgorithm choose_all_reduce(std::size_t bytes, int ranks) noexcept {
    if (bytes <= small_bytes) return AllReduceAlgorithm::recursive_doubling;
    constexpr std::size_t small_message = std::size_t{512} << 10;
    const bool has_small_messages = bytes / static_cast<std::size_t>(ranks) <= small_message;
    return has_small_messages ? AllReduceAlgorithm::recursive_halving : AllReduceAlgorithm::ring;
}

DPTK_INLINE void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction,
                            AllReduceAlgorithm algorithm) {
    if (algorithm == AllReduceAlgorithm::automatic)
        algorithm = choose_all_reduce(data.bytes(), messages.size());
    if (algorithm == AllReduceAlgorithm::recursive_halving && !is_power_of_two(messages.size()))
        algorithm = AllReduceAlgorithm::ring;
    if (needs_slices(data.dtype, reduction)) algorithm = AllReduceAlgorithm::slices;
    switch (algorithm) {
        case AllReduceAlgorithm::automatic:
        case AllReduceAlgorithm::ring: ring::all_reduce(messages, data, reduction); break;
        case AllReduceAlgorithm::tree: tree::all_reduce(messages, data, reduction); break;
        case AllReduceAlgorithm::recursive_doubling:
            recursive::all_reduce_by_doubling(messages, data, reduction);
            break;
        case AllReduceAlgorithm::recursive_halving:
            recursive::all_reduce_by_halving(messages, data, reduction);
            break;
        case AllReduceAlgorithm::slices: {
            const Slices parts(data, slice_counts(data.count, messages.size()));
            slices::reduce_scatter(messages, parts, parts[messages.rank()], reduction);
            return ring::all_gather(messages, parts);
        }
    }
    if (reduction.averages()) detail::divide(data, messages.size());
}

DPTK_INLINE void reduce(Messages& messages, const Buffer& data, const Reduction& reduction, int root) {
    constexpr std::size_t ring_bytes = std::size_t{1} << 20;  // for each rank
    const int rank = messages.rank();
    const int size = messages.size();
    const bool by_slices = needs_slices(data.dtype, reduction);
    const bool by_tree = size == 1 || data.bytes() <= small_bytes;
    const bool by_chain = size == 2 || data.bytes() > ring_bytes * static_cast<std::size_t>(size);
    if (!by_slices && (by_tree || by_chain)) {
        by_tree ? tree::reduce(messages, data, reduction, root)
                : chain::reduce(messages, data, reduction, root);
        if (reduction.averages() && rank == root) detail::divide(data, size);
        return;
    }
    const Slices parts(data, slice_counts(data.count, size));
    const Scratch sum(parts[0]);
    const Buffer own = sum.buffer().slice(0, parts[rank].count);
    if (by_slices) {
        slices::reduce_scatter(messages, parts, own, reduction);
    } else {
        ring::reduce_scatter(messages, parts, sum.buffer(), reduction);
        if (reduction.averages()) detail::divide(own, size);
    }
    if (rank != root) return messages.send(own, root);
    detail::convert(parts[rank], own);
    for (int other = 0; other < size; ++other) {
        if (other != root) messages.recv(parts[other], other);
    }
}

DPTK_INLINE void reduce_scatter(Messages& messages, const Buffer& input, const Buffer& output,
                                const Reduction& reduction) {
    const std::vector<std::size_t> counts(static_cast<std::size_t>(messages.size()), output.count);
    const Slices parts(input, counts);
    const bool overlaps = detail::overlap(input, output);
    const Scratch apart(output.slice(0, overlaps ? output.count : 0));
    const Buffer& result = overlaps ? apart.buffer() : output;
    if (needs_slices(input.dtype, reduction) || input.bytes() <= small_bytes) {
        slices::reduce_scatter(messages, parts, result, reduction);
    } else {
        ring::reduce_scatter(messages, parts, result, reduction);
        if (reduction.averages()) detail::divide(result, messages.size());
    }
    if (overlaps) detail::convert(output, result);
}

DPTK_INLINE void scatter(Messages& messages, const Buffer& input, const Buffer& output, int root) {
    if (messages.rank() != root) return messages.recv(output, root);
    for (int other = 0; other < messages.size(); ++other) {
        const Buffer part = input.slice(static_cast<std::size_t>(other) * output.count, output.count);
        if (other == root) {
            place(output, part);
        } else {
            messages.send(part, other);
        }
    }
}

DPTK_INLINE void gather(Messages& messages, const Buffer& input, const Buffer& output, int root) {
    if (messages.rank() != root) return messages.send(input, root);
    for (int other = 0; other < messages.size(); ++other) {
        const Buffer part = output.slice(static_cast<std::size_t>(other) * input.count, input.count);
        if (other == root) {
            place(part, input);
        } else {
            messages.recv(part, other);
        }
    }
}

DPTK_INLINE void all_to_all(Messages& messages, const Slices& out, const Slices& in) {
    place(in[messages.rank()], out[messages.rank()]);
    with_each_partner(messages, [&](int partner) { messages.exchange(out[partner], in[partner], partner); });
}

DPTK_INLINE Collective on_copy(const Collective& call, const Scratch& copy) {
    Collective plain = call;
    plain.input = copy.buffer();
    if (call.reduction.weight) {
        detail::scale(copy.buffer(), call.input.data, *call.reduction.weight);
        plain.reduction = ReduceOp::sum;
    } else {
        detail::convert(copy.buffer(), call.input);
    }
    return plain;
}

DPTK_INLINE void over_messages(Messages& messages, const Collective& call) {
    const int rank = messages.rank();
    if (messages.size() == 1) {
        if (call.verb != Verb::barrier) place(call.output, call.input);
        return;
    }
    switch (call.verb) {
        case Verb::all_reduce:
            place(call.output, call.input);
            return algorithms::all_reduce(messages, call.output, call.reduction, call.algorithm);
        case Verb::reduce:
            if (rank == call.root) place(call.output, call.input);
            return algorithms::reduce(messages, rank == call.root ? call.output : call.input, call.reduction,
                                      call.root);
        case Verb::broadcast: return tree::broadcast(messages, call.output, call.root);
        case Verb::all_gather:
        case Verb::all_gather_uneven: {
            const Slices parts(call.output,
                               call.verb == Verb::all_gather
                                   ? std::vector(static_cast<std::size_t>(messages.size()), call.input.count)
                                   : std::vector(call.counts.begin(), call.counts.end()));
            place(parts[rank], call.input);
            return ring::all_gather(messages, parts);
        }
        case Verb::gather: return algorithms::gather(messages, call.input, call.output, call.root);
        case Verb::scatter: return algorithms::scatter(messages, call.input, call.output, call.root);
        case Verb::reduce_scatter:
            return algorithms::reduce_scatter(messages, call.input, call.output, call.reduction);
        case Verb::all_to_all: {
            const std::vector<std::size_t> counts =
                slice_counts(call.input.count, messages.size());  // all of the same size
            return algorithms::all_to_all(messages, Slices(call.input, counts), Slices(call.output, counts));
        }
        case Verb::all_to_all_uneven:
            return algorithms::all_to_all(messages, Slices(call.input, call.counts),
                                          Slices(call.output, call.output_counts));
        case Verb::barrier: {
            std::uint8_t token = 0;
            return recursive::all_reduce_by_doubling(messages, Buffer{&token, 1, DType::u8, {}, 0},
                                                     ReduceOp::max);
        }
        case Verb::allocate:
        case Verb::duplicate:
        case Verb::subgroup:
        case Verb::send:
        case Verb::recv:
        case Verb::probe: break;  // not executed by these algorithms
    }
}

}  // namespace DPTK_NAMESPACE::algorithms
