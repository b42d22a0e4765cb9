/// Rank environment: the environment variables that dptk-run and spawn set for each rank. They are
/// DPTK_RUN_ID, DPTK_ERROR_FILE and the variables of torchrun, so that programs written for torchrun run
/// unchanged. This file also lists the variables of other launchers. dptk-run and spawn remove those
/// variables, because they would contradict the rank's own.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/net/host.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The position of one rank in its job.
struct RankPlace {
    int rank = 0;
    int world_size = 1;
    int local_rank = 0;
    int local_world_size = 1;
    int group_rank = 0;        ///< the index of the host
    int group_world_size = 1;  ///< the number of hosts
};

/// The settings that are equal for all ranks of a job.
struct JobPlace {
    std::string master_addr = loopback_address();
    int master_port = 29500;
    /// The name of the job, which distinguishes it from other jobs on the same port.
    std::string run_id;
    int restart_count = 0;
    int max_restarts = 0;
};

using EnvironmentVariable = std::pair<std::string, std::string>;

/// Returns the variables of one rank. `error_file` is the path of its failure report.
[[nodiscard]] std::vector<EnvironmentVariable> rank_environment(const RankPlace& place, const JobPlace& job,
                                                                const std::string& error_file);

/// Returns whether another launcher uses this variable to pass a process its rank or the address of the
/// launcher. Returns false for variables that describe a job (SLURM_JOB_*) or tune a library (PMIX_MCA_*,
/// most of OMPI_MCA_*).
[[nodiscard]] bool is_stale_launcher_variable(std::string_view name);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/detail/rank_environment.ipp"
#endif
