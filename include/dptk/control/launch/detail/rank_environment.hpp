/// What a launcher puts into the environment of the ranks that it starts: the variables of torchrun, so that
/// programs made for it run unchanged, and two of dptk's own. And which variables of other launchers it takes
/// out, because they would contradict.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Where one rank stands in its job.
struct RankPlace {
    int rank = 0;
    int world_size = 1;
    int local_rank = 0;
    int local_world_size = 1;
    int group_rank = 0;  ///< the number of the host
    int group_world_size = 1;
};

/// What all ranks of a job share.
struct JobPlace {
    std::string master_addr = "127.0.0.1";
    int master_port = 29500;
    /// The name of the job, by which two jobs on one port are told apart.
    std::string run_id;
    int restart_count = 0;
    int max_restarts = 0;
};

using EnvironmentVariable = std::pair<std::string, std::string>;

/// The variables of one rank. `error_file` is where it leaves its failure note.
[[nodiscard]] std::vector<EnvironmentVariable> rank_environment(const RankPlace& place, const JobPlace& job,
                                                                const std::string& error_file);

/// Whether this is a variable by which another launcher tells a process its rank, or how to reach the
/// launcher. What describes a job (SLURM_JOB_*) or tunes a library (OMPI_MCA_*, PMIX_MCA_*) is not.
[[nodiscard]] bool is_stale_launcher_variable(std::string_view name);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/detail/rank_environment.ipp"
#endif
