#pragma once

#include "dptk/comm/shm/hosts.hpp"

#include <algorithm>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE NodeHosts::NodeHosts(std::span<const NodeCard> cards, int rank)
    : world(static_cast<int>(cards.size())) {
    std::vector<std::uint64_t> names;
    for (std::size_t other = 0; other < cards.size(); ++other) {
        auto found = std::ranges::find(names, cards[other].host);
        if (found == names.end()) {
            found = names.insert(found, cards[other].host);
            ranks.emplace_back();
        }
        const auto h = static_cast<std::size_t>(found - names.begin());
        if (static_cast<int>(other) == rank) {
            host = static_cast<int>(h);
            place = static_cast<int>(ranks[h].size());
        }
        ranks[h].push_back(static_cast<int>(other));
    }
    everywhere = static_cast<int>(std::ranges::min(ranks, {}, &std::vector<int>::size).size());
    const auto largest = std::ranges::max(ranks, {}, &std::vector<int>::size).size();
    shared = largest > 1;
    even = static_cast<std::size_t>(everywhere) == largest;
    may_share = std::ranges::all_of(
        cards, [](const NodeCard& card) { return card.wishes.sharing == NodeWishes::Sharing::yes; });
    find_crowd(cards);
}

DPTK_INLINE std::vector<int> NodeHosts::across() const {
    std::vector<int> out;
    for (const std::vector<int>& of_host : ranks) out.push_back(of_host[static_cast<std::size_t>(place)]);
    return out;
}

DPTK_INLINE void NodeHosts::find_crowd(std::span<const NodeCard> cards) {
    cpu_set_t all = {};
    for (const int other : local()) {
        const cpu_set_t& processors = cards[static_cast<std::size_t>(other)].processors;
        CPU_OR(&all, &all, &processors);
    }
    int processors = CPU_COUNT(&all);
    bool is_told = false;
    for (const NodeCard& card : cards) {
        if (card.wishes.processors == 0) continue;
        processors = is_told ? std::min(processors, card.wishes.processors) : card.wishes.processors;
        is_told = true;
    }
    const int here = static_cast<int>(local().size());
    crowd = {.has_own_processors = here <= processors, .has_spare_processors = 2 * here <= processors};
}

}  // namespace DPTK_NAMESPACE::detail
