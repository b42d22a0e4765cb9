#include "hosts.hpp"

#include <algorithm>
#include <set>

namespace info {

namespace {

[[nodiscard]] bool same_host(const HostFacts& one, const HostFacts& other) {
    return one.name == other.name && one.boot_id == other.boot_id;
}

/// The number of cores that the ranks may use together, bounded by the limit of their control group if all
/// ranks are in the same one.
[[nodiscard]] double cores_of(const std::vector<const RankFacts*>& ranks) {
    std::set<int> cores;
    for (const RankFacts* rank : ranks) cores.insert(rank->host.cores.begin(), rank->host.cores.end());
    const double count = static_cast<double>(cores.size());
    const HostFacts& first = ranks.front()->host;
    const bool one_group =
        std::ranges::all_of(ranks, [&](const RankFacts* rank) { return rank->host.cgroup == first.cgroup; });
    return one_group && first.cpu_limit ? std::min(count, *first.cpu_limit) : count;
}

}  // namespace

std::vector<Host> hosts_of(const JobFacts& job) {
    std::vector<Host> hosts;
    for (const RankFacts& rank : job.ranks) {
        const auto known =
            std::ranges::find_if(hosts, [&](const Host& host) { return same_host(host.facts(), rank.host); });
        Host& host = known == hosts.end() ? hosts.emplace_back() : *known;
        host.ranks.push_back(&rank);
    }
    for (Host& host : hosts) host.cores = cores_of(host.ranks);
    return hosts;
}

int share_of_cores(const JobFacts& job, int rank) {
    for (const Host& host : hosts_of(job)) {
        for (const RankFacts* resident : host.ranks) {
            if (resident->rank != rank) continue;
            const double share = host.cores / static_cast<double>(host.ranks.size());
            const double own = static_cast<double>(resident->host.cores.size());
            return std::max(1, static_cast<int>(std::min(share, own)));
        }
    }
    return 1;
}

}  // namespace info
