// The job to run: the options, completed with values from this host.
#pragma once

#include <dptk/control/launch/detail/rank_environment.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "environment.hpp"
#include "options.hpp"

namespace run {

struct Job {
    Options options;
    std::string program;  // path of the executable
    int local_size = 1;
    std::string run_id;
    Environment environment;
    std::string log_dir;  // empty: no files
    /// How long a rank may send no heartbeat.
    std::chrono::milliseconds heartbeat_timeout{0};
    /// How long a rank may be stopped (suspended) before the job ends.
    std::chrono::milliseconds stop_timeout{0};
    /// How long ranks may take to end after they were asked to.
    std::chrono::milliseconds shutdown_timeout{0};
    /// Messages for the user.
    std::vector<std::string> remarks;

    [[nodiscard]] int world_size() const { return local_size * options.nnodes; }
    [[nodiscard]] bool has_several_hosts() const { return options.max_nnodes > 1; }
    [[nodiscard]] dptk::detail::RankPlace place(int local_rank) const;
};

/// Completes the options. Throws dptk::ArgumentError if they ask for GPUs and this host has none, or if
/// --shutdown-timeout, DPTK_SHUTDOWN_TIMEOUT or DPTK_HEARTBEAT_TIMEOUT is not a number of seconds.
[[nodiscard]] Job make_job(const Options& options, const std::string& program);

}  // namespace run
