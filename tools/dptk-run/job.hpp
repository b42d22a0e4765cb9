// The job to run: the options, completed with values from this host.
#pragma once

#include <dptk/control/launch/detail/rank_environment.hpp>

#include <string>

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
    /// A message for the user; may be empty.
    std::string remark;

    [[nodiscard]] int world_size() const { return local_size * options.nnodes; }
    [[nodiscard]] dptk::detail::RankPlace place(int local_rank) const;
};

/// Completes the options. Throws dptk::ArgumentError if they ask for GPUs and this host has none.
[[nodiscard]] Job make_job(const Options& options, const std::string& program);

}  // namespace run
