/// Which ranks share a host, and which of other hosts each of them works with.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/comm/node_wishes.hpp"

namespace dptk::detail {

/// What each rank tells all others before they share memory.
struct NodeCard {
    std::uint64_t host = 0;
    NodeWishes wishes = {};
    /// On which it may run.
    cpu_set_t processors = {};
    /// A number that no other group has; rank 0's counts.
    std::uint64_t token = 0;
};

/// How the ranks of a host divide its processors, with all ranks of the job that are there.
struct NodeCrowd {
    /// Each has one: whoever waits may keep it for a while.
    bool has_own_processors = false;
    /// Each has another one: a thread in the background need not take that of the thread that computes.
    bool has_spare_processors = false;
};

/// The hosts of a group as one rank sees them.
struct NodeHosts {
    /// `cards`: of all ranks, by rank.
    NodeHosts(std::span<const NodeCard> cards, int rank) : world(static_cast<int>(cards.size())) {
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

    [[nodiscard]] int count() const noexcept { return static_cast<int>(ranks.size()); }

    /// The ranks of this host, in order.
    [[nodiscard]] const std::vector<int>& local() const { return ranks[static_cast<std::size_t>(host)]; }

    /// The ranks with this one's place, one a host, in the order of the hosts. Of a place that all hosts
    /// have.
    [[nodiscard]] std::vector<int> across() const {
        std::vector<int> out;
        for (const std::vector<int>& of_host : ranks) out.push_back(of_host[static_cast<std::size_t>(place)]);
        return out;
    }

    int world;
    /// Of each host, in order. Hosts come in the order of their first ranks.
    std::vector<std::vector<int>> ranks;
    /// This rank's host, and its place there.
    int host = 0;
    int place = 0;
    /// How many ranks each host has, at least; and whether all have as many.
    int everywhere = 0;
    bool even = false;
    /// Whether any host has several ranks.
    bool shared = false;
    /// Of this host, where the group is all of the job.
    NodeCrowd crowd;
    /// Whether no rank wants to go without.
    bool may_share = true;

  private:
    /// By the least number that a rank has been told, or by the ranks' affinities.
    void find_crowd(std::span<const NodeCard> cards) {
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
};

}  // namespace dptk::detail
