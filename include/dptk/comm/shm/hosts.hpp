/// Host topology of a group: which ranks share a host, and which ranks communicate between hosts.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/comm/shm/settings.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// What each rank sends to all others before they share memory.
struct ShmPeerInfo {
    std::uint64_t host = 0;
    ShmSettings settings = {};
    /// The CPU affinity mask of the process.
    cpu_set_t processors = {};
    /// A random number that identifies the group. All ranks use the token of rank 0.
    std::uint64_t token = 0;
};

/// How many processors each rank of the job has on this host.
struct CpuBudget {
    /// Whether each rank has at least one processor: a waiting rank then spins before it sleeps.
    bool has_own_processors = false;
    /// Whether each rank has at least two processors: background threads then do not compete with the thread
    /// that computes.
    bool has_spare_processors = false;
};

/// The hosts of a group, as seen by one rank.
struct ShmHosts {
    /// `peers` holds the info of all ranks, indexed by rank.
    ShmHosts(std::span<const ShmPeerInfo> peers, int rank);

    [[nodiscard]] int count() const noexcept { return static_cast<int>(ranks.size()); }

    /// The ranks of this host, in order.
    [[nodiscard]] const std::vector<int>& local() const { return ranks[static_cast<std::size_t>(host)]; }

    /// The ranks that have the same local rank as this rank, one on each host, in the order of the hosts.
    /// Requires that every host has such a rank.
    [[nodiscard]] std::vector<int> across() const;

    int world;
    /// The ranks of each host, in order. Hosts are ordered by their first ranks.
    std::vector<std::vector<int>> ranks;
    /// The index of this rank's host, and the rank's index among the ranks of that host.
    int host = 0;
    int local_rank = 0;
    /// The smallest number of ranks on a host, and whether all hosts have equally many ranks.
    int min_local_size = 0;
    bool even = false;
    /// Whether any host has several ranks.
    bool shared = false;
    /// The CPU budget of this host. Only valid if the group consists of all ranks of the job.
    CpuBudget cpu_budget;
    /// Whether no rank has disabled shared memory.
    bool may_share = true;

  private:
    /// Uses the smallest number of processors that any rank has set. If no rank has set a number, counts the
    /// processors in the affinity masks of this host's ranks.
    void find_cpu_budget(std::span<const ShmPeerInfo> peers);
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/hosts.ipp"
#endif
