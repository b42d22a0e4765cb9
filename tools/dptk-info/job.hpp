// Joins the job of this process, as started by its launcher, and gathers the facts of all ranks.
#pragma once

#include <dptk/comm/process_group.hpp>

#include <string>

#include "facts.hpp"

namespace info {

struct Job {
    dptk::ProcessGroup group;
    std::string launcher;
    /// Why init_process_group failed; empty if it succeeded. After a failure, `group` contains only this
    /// process.
    std::string problem;
    /// Whether this process prints the report: true on rank 0 of the processes that the launcher started.
    bool prints_report = true;
};

/// Joins the job. Collective. Throws if the rendezvous of the ranks fails.
[[nodiscard]] Job join_job();

/// Gathers the facts of all ranks on all ranks. Collective.
[[nodiscard]] JobFacts gather_job_facts(Job& job);

}  // namespace info
