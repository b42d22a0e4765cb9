#pragma once

#include "dptk/comm/shm/gather_broadcast.hpp"

#include <algorithm>
#include <vector>

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void ShmAllGather::run(const Collective& call) {
    const std::size_t bytes = call.input.bytes();
    const auto hosts = static_cast<std::size_t>(context_.hosts().count());
    Buffer own = call.input;
    if (!context_.one_host()) {
        own.count *= hosts;
        own.data = context_.scratch(own.bytes());
        context_.across({.verb = Verb::all_gather, .input = call.input, .output = own});
    }
    place(call, region_.rank(), static_cast<const std::byte*>(own.data), 0, own.bytes());
    if (own.bytes() <= ShmRegion::slot_bytes) {
        shm_copy(region_.next_slot(), own.data, own.bytes());
        context_.enter_barrier(call);
        return collect(call, 0, own.bytes(), [&](int rank) { return region_.slot_of(rank); });
    }
    context_.enter_barrier(call, context_.address_of(own));
    if (const ShmContext::Parts parts = context_.common_memory(); parts.first != nullptr) {
        collect(call, 0, bytes,
                [&](int rank) { return parts.at(rank, region_.record_of(rank).address.offset); });
        return region_.leave_barrier();
    }
    for (std::size_t done = 0; done < own.bytes(); done += context_.stage_bytes()) {
        const std::size_t some = std::min(context_.stage_bytes(), own.bytes() - done);
        shm_copy(region_.next_stage(), static_cast<const std::byte*>(own.data) + done, some);
        region_.enter_barrier({});
        collect(call, done, some, [&](int rank) { return region_.stage_of(rank); });
    }
}

DPTK_INLINE void ShmAllGather::place(const Collective& call, int rank, const std::byte* from,
                                     std::size_t done, std::size_t some) {
    const std::size_t bytes = call.input.bytes();
    for (std::size_t at = done; at < done + some;) {
        const std::size_t host = at / bytes;
        const std::size_t in_part = at % bytes;
        const std::size_t length = std::min(bytes - in_part, done + some - at);
        const int part = context_.hosts().ranks[host][static_cast<std::size_t>(rank)];
        std::byte* const to =
            static_cast<std::byte*>(call.output.data) + static_cast<std::size_t>(part) * bytes + in_part;
        const std::byte* const source = from + (at - done);
        if (to != source) shm_copy(to, source, length);
        at += length;
    }
}

DPTK_INLINE void ShmBroadcast::run(const Collective& call) {
    const ShmHosts& hosts = context_.hosts();
    for (int host = 0; host < hosts.count(); ++host) {
        const std::vector<int>& ranks = hosts.ranks[static_cast<std::size_t>(host)];
        const auto found = detail::find(ranks, call.root);
        if (found == ranks.end()) continue;
        if (host != hosts.host) return run_on_other_host(call, host);
        return run_on_root_host(call, static_cast<int>(found - ranks.begin()));
    }
}

DPTK_INLINE void ShmBroadcast::run_on_root_host(const Collective& call, int root) {
    const Buffer& data = call.output;
    const bool is_root = region_.rank() == root;
    if (context_.one_host() && data.bytes() <= ShmRegion::slot_bytes) {
        if (is_root) shm_copy(region_.next_slot(), data.data, data.bytes());
        context_.enter_barrier(call);
        if (!is_root) shm_copy(data.data, region_.slot_of(root), data.bytes());
        return;
    }
    context_.enter_barrier(call, context_.address_of(data));
    const ShmAddress address = region_.record_of(root).address;
    const ShmContext::Parts parts = context_.common_memory();
    context_.for_pieces(data, [&](std::size_t done, const Buffer& some) {
        std::byte* from = nullptr;
        if (parts.first != nullptr) {
            from = parts.at(root, address.offset) + done * some.element_size();
        } else {
            if (is_root) shm_copy(region_.next_stage(), some.data, some.bytes());
            region_.enter_barrier({});
            from = region_.stage_of(root);
        }
        if (!is_root) shm_copy(some.data, from, some.bytes());
        exchange_slice(some.at(from), context_.hosts().host);
    });
    if (parts.first != nullptr) region_.leave_barrier();
}

DPTK_INLINE void ShmBroadcast::run_on_other_host(const Collective& call, int root_host) {
    context_.enter_barrier(call);
    context_.for_pieces(call.output, [&](std::size_t, const Buffer& some) {
        const ElementSlice range = exchange_slice(some, root_host);
        const Buffer own = some.slice(range.first, range.count);
        const std::size_t begin = range.first * some.element_size();
        const std::size_t end = begin + own.bytes();
        shm_copy(region_.next_result() + begin, own.data, own.bytes());
        region_.enter_barrier({});
        auto* const out = static_cast<std::byte*>(some.data);
        shm_copy(out, region_.result(), begin);
        shm_copy(out + end, region_.result() + end, some.bytes() - end);
    });
}

DPTK_INLINE ElementSlice ShmBroadcast::exchange_slice(const Buffer& some, int root_host) {
    if (context_.one_host()) return {};
    const ElementSlice range = shm_slice(some.count, context_.hosts().min_local_size, region_.rank());
    const Buffer own = some.slice(range.first, range.count);
    if (range.count != 0)
        context_.across({.verb = Verb::broadcast, .input = own, .output = own, .root = root_host});
    return range;
}

}  // namespace DPTK_NAMESPACE::detail
