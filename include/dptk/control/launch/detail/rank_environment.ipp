#pragma once

#include "dptk/control/launch/detail/rank_environment.hpp"

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::vector<EnvironmentVariable> rank_environment(const RankPlace& place, const JobPlace& job,
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

DPTK_INLINE bool is_stale_launcher_variable(std::string_view name) {
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
    return detail::any_of(stale, matches) && detail::none_of(tuning, matches);
}

}  // namespace DPTK_NAMESPACE::detail
