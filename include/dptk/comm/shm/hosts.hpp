/// Which ranks share a host, and which of other hosts each of them works with.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/comm/shm/settings.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// What each rank tells all others before they share memory.
struct ShmPeerInfo {
    std::uint64_t host = 0;
    ShmSettings settings = {};
    /// On which it may run.
    cpu_set_t processors = {};
    /// A number that no other group has; rank 0's counts.
    std::uint64_t token = 0;
};

/// How the ranks of a host divide its processors, with all ranks of the job that are there.
struct CpuBudget {
    /// Each has one: whoever waits may keep it for a while.
    bool has_own_processors = false;
    /// Each has another one: a thread in the background need not take that of the thread that computes.
    bool has_spare_processors = false;
};

/// The hosts of a group as one rank sees them.
struct ShmHosts {
    /// `peers`: of all ranks, by rank.
    ShmHosts(std::span<const ShmPeerInfo> peers, int rank);

    [[nodiscard]] int count() const noexcept { return static_cast<int>(ranks.size()); }

    /// The ranks of this host, in order.
    [[nodiscard]] const std::vector<int>& local() const { return ranks[static_cast<std::size_t>(host)]; }

    /// The ranks with this one's place, one a host, in the order of the hosts. Of a place that all hosts
    /// have.
    [[nodiscard]] std::vector<int> across() const;

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
    CpuBudget cpu_budget;
    /// Whether no rank wants to go without.
    bool may_share = true;

  private:
    /// By the least number that a rank has been told, or by the ranks' affinities.
    void find_cpu_budget(std::span<const ShmPeerInfo> peers);
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/hosts.ipp"
#endif
