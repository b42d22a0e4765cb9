/// Which ranks share a host, and which of other hosts each of them works with.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dptk::detail {

/// What each rank tells all others before they share memory.
struct NodeCard {
    std::uint64_t host = 0;
    /// Whether it wants to; wrong where what says so makes no sense.
    enum class Wish : std::uint8_t { no, yes, wrong } wish = Wish::no;
    /// On which it may run.
    cpu_set_t processors = {};
    /// A number that no other group has; rank 0's counts.
    std::uint64_t token = 0;
};

/// The hosts of a group as one rank sees them.
struct NodeHosts {
    /// `cards`: of all ranks, by rank.
    NodeHosts(std::span<const NodeCard> cards, int rank) {
        std::vector<std::uint64_t> hosts;
        for (const NodeCard& card : cards) {
            if (std::ranges::find(hosts, card.host) == hosts.end()) hosts.push_back(card.host);
        }
        const std::vector<int> own = ranks_of(cards, cards[static_cast<std::size_t>(rank)].host);
        local = own;
        place = static_cast<int>(std::ranges::find(own, rank) - own.begin());
        count = static_cast<int>(hosts.size());
        everywhere = static_cast<int>(own.size());
        for (const std::uint64_t host : hosts) {
            const std::vector<int> theirs = ranks_of(cards, host);
            const int size = static_cast<int>(theirs.size());
            shared = shared || size > 1;
            everywhere = std::min(everywhere, size);
            if (place < size) across.push_back(theirs[static_cast<std::size_t>(place)]);
        }
        cpu_set_t all = {};
        for (const int other : own) {
            const cpu_set_t& processors = cards[static_cast<std::size_t>(other)].processors;
            CPU_OR(&all, &all, &processors);
        }
        has_own_processors = static_cast<int>(own.size()) <= CPU_COUNT(&all);
    }

    /// The ranks of this host, in order, and the place of this one among them.
    std::vector<int> local;
    int place = 0;
    int count = 0;
    /// How many ranks each host has, at least.
    int everywhere = 0;
    /// Those with this rank's place, one a host, where all hosts have one.
    std::vector<int> across;
    /// Whether any host has several ranks.
    bool shared = false;
    /// Whether there is a processor for each of this host's ranks.
    bool has_own_processors = false;

  private:
    [[nodiscard]] static std::vector<int> ranks_of(std::span<const NodeCard> cards, std::uint64_t host) {
        std::vector<int> ranks;
        for (std::size_t rank = 0; rank < cards.size(); ++rank) {
            if (cards[rank].host == host) ranks.push_back(static_cast<int>(rank));
        }
        return ranks;
    }
};

}  // namespace dptk::detail
