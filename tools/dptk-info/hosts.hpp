// Which ranks share a host, and what of its cores they may use together.
#pragma once

#include <vector>

#include "facts.hpp"

namespace info {

struct Host {
    std::vector<const RankFacts*> ranks;  // never empty
    double cores = 0;  // of all these ranks together; a control group may allow parts of one

    [[nodiscard]] const HostFacts& facts() const { return ranks.front()->host; }
};

/// In the order of their first ranks. Points into `job`.
[[nodiscard]] std::vector<Host> hosts_of(const JobFacts& job);

/// The threads that `rank` computes with when the ranks of a host divide its cores; at least 1.
[[nodiscard]] int share_of_cores(const JobFacts& job, int rank);

}  // namespace info
