#pragma once

#include "dptk/comm/shm/all_reduce.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "dptk/comm/algorithms/run.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void NodeAllReduce::run(const Collective& call) {
    algorithms::place(call.output, call.input);
    const Buffer& data = call.output;
    const auto ranks = static_cast<std::size_t>(hub_.size());
    const bool fits = ground_.one_host() && data.bytes() <= NodeHub::slot_bytes &&
                      data.bytes() * ranks <= 4 * NodeHub::slot_bytes;
    const auto leave_copy = [&] { node_copy(hub_.next_slot(), data.data, data.bytes()); };
    // One meeting does where all read all. In place it takes two, and less copying.
    constexpr std::size_t tiny = 2048;
    if (fits && (data.bytes() <= tiny || !hub_.has_own_processor())) {
        leave_copy();
        ground_.meet(call);
        return reduce_copies(data, call.reduction);
    }
    const NodePlace place = ground_.place_of(data);
    if (fits && place.allocation == 0) leave_copy();
    ground_.meet(call, place);
    if (const NodeGround::Parts parts = ground_.common_memory(); parts.first != nullptr)
        return in_place(parts, data, call.reduction);
    if (!fits) return through_memory(data, call.reduction);
    if (ground_.some_memory_is_shared()) {  // by ranks that have left no copy
        leave_copy();
        hub_.meet({});
    }
    reduce_copies(data, call.reduction);
}

DPTK_INLINE void NodeAllReduce::reduce_copies(const Buffer& data, const Reduction& reduction) {
    for (int rank = 0; rank < hub_.size(); ++rank) ground_.source(rank) = hub_.slot_of(rank);
    reduce_together({ground_.sources, {&data.data, 1}, data.count, ground_.world()}, data, data.dtype,
                    reduction);
}

DPTK_INLINE void NodeAllReduce::in_place(const NodeGround::Parts& parts, const Buffer& data,
                                         const Reduction& reduction) {
    const auto reduce = [&](const NodeRange& range) {
        const std::size_t at = range.first * data.element_size();
        for (int i = 0; i < hub_.size(); ++i) {
            const int rank = (hub_.rank() + i) % hub_.size();
            std::byte* const theirs = parts.at(rank, hub_.note_of(rank).place.offset) + at;
            ground_.source(rank) = theirs;
            ground_.results[static_cast<std::size_t>(i)] = theirs;  // the own one first
        }
        reduce_range(data.slice(range.first, range.count), ground_.results, reduction);
    };
    if (!ground_.one_host()) {
        // In the pieces of through_memory(), by which other hosts may go.
        ground_.for_pieces(data, [&](std::size_t done, const Buffer& some) {
            const NodeRange own = own_slice(some);
            reduce({done + own.first, own.count});
        });
        return hub_.part();
    }
    if (hub_.has_own_processor()) {
        reduce(own_slice(data));
        return hub_.part();
    }
    // Whoever has a processor goes on.
    constexpr std::size_t piece_bytes = 65536;
    const std::size_t piece = std::max<std::size_t>(piece_bytes / data.element_size(), 64);
    hub_.share((data.count + piece - 1) / piece, [&](std::size_t i) {
        reduce({i * piece, std::min(piece, data.count - i * piece)});
    });
}

DPTK_INLINE void NodeAllReduce::through_memory(const Buffer& data, const Reduction& reduction) {
    const auto copy_in = [&](const Buffer& some) {
        const NodeRange own = own_slice(some);
        const Buffer before = some.slice(0, own.first);
        const std::size_t end = own.first + own.count;
        const Buffer after = some.slice(end, some.count - end);
        node_copy(hub_.next_stage(), before.data, before.bytes());
        node_copy(hub_.next_stage() + end * some.element_size(), after.data, after.bytes());
    };
    ground_.for_pieces(data, [&](std::size_t done, const Buffer& some) {
        if (done == 0) {
            copy_in(some);
            hub_.meet({});
        }
        const NodeRange range = own_slice(some);
        const Buffer own = some.slice(range.first, range.count);
        const std::size_t at = range.first * some.element_size();
        for (int rank = 0; rank < hub_.size(); ++rank)
            ground_.source(rank) = rank == hub_.rank() ? own.data : hub_.stage_of(rank) + at;
        const std::array<void*, 2> results{own.data, hub_.next_result() + at};
        reduce_range(own, results, reduction);
        const std::size_t next = done + some.count;
        if (next < data.count) copy_in(data.slice(next, std::min(some.count, data.count - next)));
        hub_.meet({});
        const std::size_t end = at + own.bytes();
        auto* const out = static_cast<std::byte*>(some.data);
        node_copy(out, hub_.result(), at);
        node_copy(out + end, hub_.result() + end, some.bytes() - end);
    });
}

DPTK_INLINE void NodeAllReduce::reduce_range(const Buffer& like, std::span<void* const> results,
                                             const Reduction& reduction) {
    const std::span<const void* const> sources = ground_.sources;
    if (ground_.one_host())
        return reduce_together({sources, results, like.count, ground_.world()}, like, like.dtype, reduction);
    if (like.count == 0) return;
    Buffer sum = like.at(results[0]);
    sum.dtype = partial_dtype(like.dtype, reduction);
    if (sum.dtype != like.dtype) sum.data = ground_.scratch(sum.bytes());
    const ReduceOp op = partial_op(reduction);
    reduce_together({sources, {&sum.data, 1}, like.count}, like, sum.dtype, op);
    ground_.across({.verb = Verb::all_reduce, .input = sum, .output = sum, .reduction = op});
    const void* const total = sum.data;
    reduce_together({{&total, 1}, results, like.count, ground_.world()}, sum, like.dtype, reduction);
}

DPTK_INLINE NodeRange NodeAllReduce::own_slice(const Buffer& data) const noexcept {
    if (ground_.one_host()) return node_slice(data.count, hub_.size(), hub_.rank());
    constexpr std::size_t smallest_message = 8192;
    const auto most = static_cast<std::size_t>(ground_.hosts().everywhere);
    const std::size_t slices = std::clamp<std::size_t>(data.bytes() / smallest_message, 1, most);
    return node_slice(data.count, static_cast<int>(slices), hub_.rank());
}

}  // namespace DPTK_NAMESPACE::detail
