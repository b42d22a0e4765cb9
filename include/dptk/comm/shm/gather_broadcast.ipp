#pragma once

#include "dptk/comm/shm/gather_broadcast.hpp"

#include <algorithm>
#include <vector>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void NodeAllGather::run(const Collective& call) {
    const std::size_t bytes = call.input.bytes();
    const auto hosts = static_cast<std::size_t>(ground_.hosts().count());
    Buffer own = call.input;
    if (!ground_.one_host()) {
        own.count *= hosts;
        own.data = ground_.scratch(own.bytes());
        ground_.across({.verb = Verb::all_gather, .input = call.input, .output = own});
    }
    place(call, hub_.rank(), static_cast<const std::byte*>(own.data), 0, own.bytes());
    if (own.bytes() <= NodeHub::slot_bytes) {
        node_copy(hub_.next_slot(), own.data, own.bytes());
        ground_.meet(call);
        return collect(call, 0, own.bytes(), [&](int rank) { return hub_.slot_of(rank); });
    }
    ground_.meet(call, ground_.place_of(own));
    if (const NodeGround::Parts parts = ground_.common_memory(); parts.first != nullptr) {
        collect(call, 0, bytes, [&](int rank) { return parts.at(rank, hub_.note_of(rank).place.offset); });
        return hub_.part();
    }
    for (std::size_t done = 0; done < own.bytes(); done += ground_.stage_bytes()) {
        const std::size_t some = std::min(ground_.stage_bytes(), own.bytes() - done);
        node_copy(hub_.next_stage(), static_cast<const std::byte*>(own.data) + done, some);
        hub_.meet({});
        collect(call, done, some, [&](int rank) { return hub_.stage_of(rank); });
    }
}

DPTK_INLINE void NodeAllGather::place(const Collective& call, int rank, const std::byte* from,
                                      std::size_t done, std::size_t some) {
    const std::size_t bytes = call.input.bytes();
    for (std::size_t at = done; at < done + some;) {
        const std::size_t host = at / bytes;
        const std::size_t in_part = at % bytes;
        const std::size_t length = std::min(bytes - in_part, done + some - at);
        const int part = ground_.hosts().ranks[host][static_cast<std::size_t>(rank)];
        std::byte* const to =
            static_cast<std::byte*>(call.output.data) + static_cast<std::size_t>(part) * bytes + in_part;
        const std::byte* const source = from + (at - done);
        if (to != source) node_copy(to, source, length);
        at += length;
    }
}

DPTK_INLINE void NodeBroadcast::run(const Collective& call) {
    const NodeHosts& hosts = ground_.hosts();
    for (int host = 0; host < hosts.count(); ++host) {
        const std::vector<int>& ranks = hosts.ranks[static_cast<std::size_t>(host)];
        const auto found = std::ranges::find(ranks, call.root);
        if (found == ranks.end()) continue;
        if (host != hosts.host) return receive(call, host);
        return spread(call, static_cast<int>(found - ranks.begin()));
    }
}

DPTK_INLINE void NodeBroadcast::spread(const Collective& call, int root) {
    const Buffer& data = call.output;
    const bool is_root = hub_.rank() == root;
    if (ground_.one_host() && data.bytes() <= NodeHub::slot_bytes) {
        if (is_root) node_copy(hub_.next_slot(), data.data, data.bytes());
        ground_.meet(call);
        if (!is_root) node_copy(data.data, hub_.slot_of(root), data.bytes());
        return;
    }
    ground_.meet(call, ground_.place_of(data));
    const NodePlace place = hub_.note_of(root).place;
    const NodeGround::Parts parts = ground_.common_memory();
    ground_.for_pieces(data, [&](std::size_t done, const Buffer& some) {
        std::byte* from = nullptr;
        if (parts.first != nullptr) {
            from = parts.at(root, place.offset) + done * some.element_size();
        } else {
            if (is_root) node_copy(hub_.next_stage(), some.data, some.bytes());
            hub_.meet({});
            from = hub_.stage_of(root);
        }
        if (!is_root) node_copy(some.data, from, some.bytes());
        exchange_slice(some.at(from), ground_.hosts().host);
    });
    if (parts.first != nullptr) hub_.part();
}

DPTK_INLINE void NodeBroadcast::receive(const Collective& call, int root_host) {
    ground_.meet(call);
    ground_.for_pieces(call.output, [&](std::size_t, const Buffer& some) {
        const NodeRange range = exchange_slice(some, root_host);
        const Buffer own = some.slice(range.first, range.count);
        const std::size_t begin = range.first * some.element_size();
        const std::size_t end = begin + own.bytes();
        node_copy(hub_.next_result() + begin, own.data, own.bytes());
        hub_.meet({});
        auto* const out = static_cast<std::byte*>(some.data);
        node_copy(out, hub_.result(), begin);
        node_copy(out + end, hub_.result() + end, some.bytes() - end);
    });
}

DPTK_INLINE NodeRange NodeBroadcast::exchange_slice(const Buffer& some, int root_host) {
    if (ground_.one_host()) return {};
    const NodeRange range = node_slice(some.count, ground_.hosts().everywhere, hub_.rank());
    const Buffer own = some.slice(range.first, range.count);
    if (range.count != 0)
        ground_.across({.verb = Verb::broadcast, .input = own, .output = own, .root = root_host});
    return range;
}

}  // namespace DPTK_NAMESPACE::detail
