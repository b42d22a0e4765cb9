#pragma once

#include "dptk/comm/shm/hosts.hpp"

#include <algorithm>

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ShmHosts::ShmHosts(std::span<const ShmPeerInfo> peers, int rank)
    : world(static_cast<int>(peers.size())) {
    std::vector<std::uint64_t> names;
    for (std::size_t other = 0; other < peers.size(); ++other) {
        auto found = detail::find(names, peers[other].host);
        if (found == names.end()) {
            found = names.insert(found, peers[other].host);
            ranks.emplace_back();
        }
        const auto h = static_cast<std::size_t>(found - names.begin());
        if (static_cast<int>(other) == rank) {
            host = static_cast<int>(h);
            local_rank = static_cast<int>(ranks[h].size());
        }
        ranks[h].push_back(static_cast<int>(other));
    }
    const auto [smallest, largest] = std::minmax_element(
        ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    min_local_size = static_cast<int>(smallest->size());
    shared = largest->size() > 1;
    even = smallest->size() == largest->size();
    may_share = detail::all_of(
        peers, [](const ShmPeerInfo& peer) { return peer.settings.sharing == ShmSettings::Sharing::yes; });
    find_cpu_budget(peers);
}

DPTK_INLINE std::vector<int> ShmHosts::across() const {
    std::vector<int> out;
    for (const std::vector<int>& of_host : ranks)
        out.push_back(of_host[static_cast<std::size_t>(local_rank)]);
    return out;
}

DPTK_INLINE void ShmHosts::find_cpu_budget(std::span<const ShmPeerInfo> peers) {
    cpu_set_t all = {};
    for (const int other : local()) {
        const cpu_set_t& processors = peers[static_cast<std::size_t>(other)].processors;
        CPU_OR(&all, &all, &processors);
    }
    int processors = CPU_COUNT(&all);
    bool is_set = false;
    for (const ShmPeerInfo& peer : peers) {
        if (peer.settings.processors == 0) continue;
        processors = is_set ? std::min(processors, peer.settings.processors) : peer.settings.processors;
        is_set = true;
    }
    const int here = static_cast<int>(local().size());
    cpu_budget = {.has_own_processors = here <= processors, .has_spare_processors = 2 * here <= processors};
}

}  // namespace DPTK_NAMESPACE::detail
