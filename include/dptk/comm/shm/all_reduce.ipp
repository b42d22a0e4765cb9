#pragma once

#include "dptk/comm/shm/all_reduce.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "dptk/comm/algorithms/run.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void ShmAllReduce::run(const Collective& call) {
    algorithms::place(call.output, call.input);
    const Buffer& data = call.output;
    if (context_.one_host() && data.bytes() <= sizeof(CallRecord::elements)) {
        context_.enter_barrier_with(data, call);
        for (int rank = 0; rank < region_.size(); ++rank)
            context_.source(rank) = region_.record_of(rank).elements.data();
        return reduce_sources(data, call.reduction);
    }
    const auto ranks = static_cast<std::size_t>(region_.size());
    const bool fits = context_.one_host() && data.bytes() <= ShmRegion::slot_bytes &&
                      data.bytes() * ranks <= 4 * ShmRegion::slot_bytes;
    const auto copy_to_slot = [&] { shm_copy(region_.next_slot(), data.data, data.bytes()); };
    // Reducing copies takes one barrier. Reducing in place takes two, but copies less.
    constexpr std::size_t tiny = 2048;
    if (fits && (data.bytes() <= tiny || !region_.has_own_processor())) {
        copy_to_slot();
        context_.enter_barrier(call);
        return reduce_copies(data, call.reduction);
    }
    const ShmAddress address = context_.address_of(data);
    if (fits && address.allocation == 0) copy_to_slot();
    context_.enter_barrier(call, address);
    if (const ShmContext::Parts parts = context_.common_memory(); parts.first != nullptr)
        return in_place(parts, data, call.reduction);
    if (!fits) return through_memory(data, call.reduction);
    if (context_.some_memory_is_shared()) {  // ranks with shared memory have not copied to their slots yet
        copy_to_slot();
        region_.enter_barrier({});
    }
    reduce_copies(data, call.reduction);
}

DPTK_INLINE void ShmAllReduce::reduce_copies(const Buffer& data, const Reduction& reduction) {
    for (int rank = 0; rank < region_.size(); ++rank) context_.source(rank) = region_.slot_of(rank);
    reduce_sources(data, reduction);
}

DPTK_INLINE void ShmAllReduce::reduce_sources(const Buffer& data, const Reduction& reduction) {
    reduce_together({context_.sources, {&data.data, 1}, data.count, context_.world()}, data, data.dtype,
                    reduction);
}

DPTK_INLINE void ShmAllReduce::in_place(const ShmContext::Parts& parts, const Buffer& data,
                                        const Reduction& reduction) {
    const auto reduce = [&](const ElementSlice& range) {
        const std::size_t at = range.first * data.element_size();
        for (int i = 0; i < region_.size(); ++i) {
            const int rank = (region_.rank() + i) % region_.size();
            std::byte* const theirs = parts.at(rank, region_.record_of(rank).address.offset) + at;
            context_.source(rank) = theirs;
            context_.results[static_cast<std::size_t>(i)] = theirs;  // this rank's result comes first
        }
        reduce_range(data.slice(range.first, range.count), context_.results, reduction);
    };
    if (!context_.one_host()) {
        // Uses the same pieces as through_memory(), which ranks of other hosts may use for this call.
        context_.for_pieces(data, [&](std::size_t done, const Buffer& some) {
            const ElementSlice own = own_slice(some);
            reduce({done + own.first, own.count});
        });
        return region_.leave_barrier();
    }
    if (region_.has_own_processor()) {
        reduce(own_slice(data));
        return region_.leave_barrier();
    }
    // Ranks share processors, so each piece goes to whichever rank is running.
    constexpr std::size_t piece_bytes = 65536;
    const std::size_t piece = std::max<std::size_t>(piece_bytes / data.element_size(), 64);
    region_.share((data.count + piece - 1) / piece, [&](std::size_t i) {
        reduce({i * piece, std::min(piece, data.count - i * piece)});
    });
}

DPTK_INLINE void ShmAllReduce::through_memory(const Buffer& data, const Reduction& reduction) {
    const auto copy_to_stage = [&](const Buffer& some) {
        const ElementSlice own = own_slice(some);
        const Buffer before = some.slice(0, own.first);
        const std::size_t end = own.first + own.count;
        const Buffer after = some.slice(end, some.count - end);
        shm_copy(region_.next_stage(), before.data, before.bytes());
        shm_copy(region_.next_stage() + end * some.element_size(), after.data, after.bytes());
    };
    context_.for_pieces(data, [&](std::size_t done, const Buffer& some) {
        if (done == 0) {
            copy_to_stage(some);
            region_.enter_barrier({});
        }
        const ElementSlice range = own_slice(some);
        const Buffer own = some.slice(range.first, range.count);
        const std::size_t at = range.first * some.element_size();
        for (int rank = 0; rank < region_.size(); ++rank)
            context_.source(rank) = rank == region_.rank() ? own.data : region_.stage_of(rank) + at;
        const std::array<void*, 2> results{own.data, region_.next_result() + at};
        reduce_range(own, results, reduction);
        const std::size_t next = done + some.count;
        if (next < data.count) copy_to_stage(data.slice(next, std::min(some.count, data.count - next)));
        region_.enter_barrier({});
        const std::size_t end = at + own.bytes();
        auto* const out = static_cast<std::byte*>(some.data);
        shm_copy(out, region_.result(), at);
        shm_copy(out + end, region_.result() + end, some.bytes() - end);
    });
}

DPTK_INLINE void ShmAllReduce::reduce_range(const Buffer& like, std::span<void* const> results,
                                            const Reduction& reduction) {
    const std::span<const void* const> sources = context_.sources;
    if (context_.one_host())
        return reduce_together({sources, results, like.count, context_.world()}, like, like.dtype, reduction);
    if (like.count == 0) return;
    Buffer sum = like.at(results[0]);
    sum.dtype = partial_dtype(like.dtype, reduction);
    if (sum.dtype != like.dtype) sum.data = context_.scratch(sum.bytes());
    const ReduceOp op = partial_op(reduction);
    reduce_together({sources, {&sum.data, 1}, like.count}, like, sum.dtype, op);
    context_.across({.verb = Verb::all_reduce, .input = sum, .output = sum, .reduction = op});
    const void* const total = sum.data;
    reduce_together({{&total, 1}, results, like.count, context_.world()}, sum, like.dtype, reduction);
}

DPTK_INLINE ElementSlice ShmAllReduce::own_slice(const Buffer& data) const noexcept {
    if (context_.one_host()) return shm_slice(data.count, region_.size(), region_.rank());
    constexpr std::size_t smallest_message = 8192;
    const auto most = static_cast<std::size_t>(context_.hosts().min_local_size);
    const std::size_t slices = std::clamp<std::size_t>(data.bytes() / smallest_message, 1, most);
    return shm_slice(data.count, static_cast<int>(slices), region_.rank());
}

}  // namespace DPTK_NAMESPACE::detail
