#include "job.hpp"

#include <dptk/control/launch/job_request.hpp>
#include <dptk/control/process/deadline.hpp>
#include <dptk/control/process/random_word.hpp>
#include <dptk/control/process/stop_schedule.hpp>
#include <dptk/core/detail/text.hpp>
#include <dptk/core/error.hpp>

#include <algorithm>
#include <cstdlib>

#include "devices.hpp"

namespace run {

namespace {

using dptk::detail::text;

int local_size(const std::string& nproc_per_node) {
    if (nproc_per_node == "cpu") return count_cores();
    if (nproc_per_node != "auto" && nproc_per_node != "gpu") return std::stoi(nproc_per_node);
    const int gpus = count_gpus("/dev", std::getenv("CUDA_VISIBLE_DEVICES"));
    if (gpus > 0) return gpus;
    if (nproc_per_node == "auto") return count_cores();
    throw dptk::ArgumentError(
        "--nproc-per-node gpu: expected at least 1 GPU, found 0: this host has none, or CUDA_VISIBLE_DEVICES "
        "hides them");
}

/// The name of the job if --rdzv-id is not given: a random one on a single host, and "none" on several hosts,
/// which could not agree on a random name.
std::string run_id(const Options& options) {
    if (!options.run_id.empty()) return options.run_id;
    return options.max_nnodes > 1 ? "none" : dptk::detail::random_word();
}

std::chrono::milliseconds shutdown_timeout(const Job& job) {
    const std::string& option = job.options.shutdown_timeout;
    if (const auto given = dptk::detail::parse_seconds("--shutdown-timeout", option)) return *given;
    const char* const variable = "DPTK_SHUTDOWN_TIMEOUT";
    return dptk::detail::parse_seconds(variable, job.environment.value(variable))
        .value_or(dptk::detail::default_shutdown_timeout);
}

/// Warns if the job runs on several hosts without a token. The name of the job (--rdzv-id) is not secret,
/// since it is on the command line.
void warn_without_token(Job& job) {
    if (!job.has_several_hosts() || job.environment.contains("DPTK_TOKEN") ||
        job.environment.contains("DPTK_TOKEN_FILE"))
        return;
    job.remarks.push_back(
        "the job has no token, so any process that can reach rank 0's host and knows --rdzv-id can join it: "
        "set DPTK_TOKEN or DPTK_TOKEN_FILE to the same token on all hosts");
}

/// Sets OMP_NUM_THREADS so that the ranks together start no more threads than there are cores.
void share_cores(Job& job) {
    if (job.local_size == 1 || job.environment.contains("OMP_NUM_THREADS")) return;
    const int cores = count_cores();
    const std::string threads = std::to_string(std::max(1, cores / job.local_size));
    job.environment.set({{"OMP_NUM_THREADS", threads}});
    job.remarks.push_back(text("OMP_NUM_THREADS is not set: setting it to ", threads, " for each of the ",
                               job.local_size, " ranks (cores: ", cores, ")"));
}

}  // namespace

dptk::detail::RankPlace Job::place(int local_rank) const {
    return {.rank = options.node_rank * local_size + local_rank,
            .world_size = world_size(),
            .local_rank = local_rank,
            .local_world_size = local_size,
            .group_rank = options.node_rank,
            .group_world_size = options.nnodes};
}

Job make_job(const Options& options, const std::string& program) {
    Job job;
    job.options = options;
    job.program = program;
    job.local_size = local_size(options.nproc_per_node);
    job.run_id = run_id(options);
    job.environment.set(options.environment);
    if (!options.log_dir.empty()) job.log_dir = text(options.log_dir, "/", job.run_id);
    // The margin lets the ranks' heartbeats report first. They detect stopped ranks with an open group.
    constexpr std::chrono::seconds margin{5};
    const char* const variable = "DPTK_HEARTBEAT_TIMEOUT";
    job.heartbeat_timeout = dptk::detail::parse_seconds(variable, job.environment.value(variable))
                                .value_or(dptk::default_heartbeat_timeout);
    job.stop_timeout = job.heartbeat_timeout + margin;
    job.shutdown_timeout = shutdown_timeout(job);
    share_cores(job);
    warn_without_token(job);
    return job;
}

}  // namespace run
