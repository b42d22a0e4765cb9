/// What a launcher puts into the environment of the ranks that it starts: the variables of torchrun, so that
/// programs made for it run unchanged, and two of dptk's own. And which variables of other launchers it takes
/// out, because they would contradict.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dptk {

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
[[nodiscard]] inline std::vector<EnvironmentVariable> rank_environment(const RankPlace& place,
                                                                       const JobPlace& job,
                                                                       const std::string& error_file) {
    const auto number = [](int value) { return std::to_string(value); };
    return {{"RANK", number(place.rank)},
            {"LOCAL_RANK", number(place.local_rank)},
            {"ROLE_RANK", number(place.rank)},
            {"GROUP_RANK", number(place.group_rank)},
            {"LOCAL_WORLD_SIZE", number(place.local_world_size)},
            {"WORLD_SIZE", number(place.world_size)},
            {"ROLE_WORLD_SIZE", number(place.world_size)},
            {"GROUP_WORLD_SIZE", number(place.group_world_size)},
            {"ROLE_NAME", "default"},
            {"MASTER_ADDR", job.master_addr},
            {"MASTER_PORT", number(job.master_port)},
            {"TORCHELASTIC_RESTART_COUNT", number(job.restart_count)},
            {"TORCHELASTIC_MAX_RESTARTS", number(job.max_restarts)},
            {"TORCHELASTIC_RUN_ID", job.run_id},
            {"TORCHELASTIC_USE_AGENT_STORE", "False"},  // rank 0 itself serves the master port
            {"DPTK_RUN_ID", job.run_id},
            {"DPTK_ERROR_FILE", error_file}};
}

/// Whether this is a variable by which another launcher tells a process its rank, or how to reach the
/// launcher. What describes a job (SLURM_JOB_*) or tunes a library (OMPI_MCA_*, PMIX_MCA_*) is not.
[[nodiscard]] inline bool is_stale_launcher_variable(std::string_view name) {
    static constexpr std::string_view tuning[] = {"PMIX_MCA_"};
    static constexpr std::string_view stale[] = {"OMPI_COMM_WORLD_",
                                                 "OMPI_UNIVERSE_SIZE",
                                                 "OMPI_MCA_orte_",
                                                 "OMPI_MCA_ess",
                                                 "OMPI_MCA_pmix",
                                                 "PMIX_",
                                                 "PMI_",
                                                 "PMI2_",
                                                 "MPI_LOCALRANKID",
                                                 "MPI_LOCALNRANKS",
                                                 "MV2_COMM_WORLD_",
                                                 "PALS_",
                                                 "FLUX_TASK_",
                                                 "FLUX_JOB_SIZE",
                                                 "HYDI_CONTROL_FD",
                                                 "SLURM_PROCID",
                                                 "SLURM_LOCALID",
                                                 "SLURM_NODEID",
                                                 "SLURM_GTIDS",
                                                 "SLURM_TASK_PID",
                                                 "SLURM_NTASKS",
                                                 "SLURM_NPROCS",
                                                 "SLURM_TASKS_PER_NODE",
                                                 "SLURM_STEP",
                                                 "TORCHELASTIC_"};
    const auto matches = [&](std::string_view prefix) { return name.starts_with(prefix); };
    return std::ranges::any_of(stale, matches) && std::ranges::none_of(tuning, matches);
}

}  // namespace dptk
