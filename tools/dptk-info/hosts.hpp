// Groups the ranks by host, and counts the cores that the ranks of a host may use together.
#pragma once

#include <vector>

#include "facts.hpp"

namespace info {

struct Host {
    std::vector<const RankFacts*> ranks;  // never empty
    double cores = 0;  // that these ranks may use together; a control group may allow a fraction of a core

    [[nodiscard]] const HostFacts& facts() const { return ranks.front()->host; }
};

/// The hosts of the job, in the order of their first ranks. The result points into `job`.
[[nodiscard]] std::vector<Host> hosts_of(const JobFacts& job);

/// The number of threads that `rank` computes with if the ranks of a host divide its cores evenly; at
/// least 1.
[[nodiscard]] int share_of_cores(const JobFacts& job, int rank);

}  // namespace info
