// The job that this process belongs to: joined as its launcher says, and described by all ranks together.
#pragma once

#include <dptk/comm/process_group.hpp>

#include <string>

#include "facts.hpp"

namespace info {

struct Job {
    dptk::ProcessGroup group;
    std::string launcher;
    /// Why init_process_group refused what the launcher said; the group is then of this process alone.
    std::string problem;
    /// Whether this process prints: rank 0 of what the launcher started.
    bool speaks = true;
};

/// Collective. Throws where the ranks do not find each other.
[[nodiscard]] Job join_job();

/// The facts of all ranks, on all ranks. Collective.
[[nodiscard]] JobFacts gather_job_facts(Job& job);

}  // namespace info
