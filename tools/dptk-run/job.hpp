// What is to be run: the options, with all that they leave open filled in from this host.
#pragma once

#include <dptk/control/launch/detail/rank_environment.hpp>

#include <string>

#include "environment.hpp"
#include "options.hpp"

namespace run {

struct Job {
    Options options;
    std::string program;  // the path to run
    int local_size = 1;
    std::string run_id;
    Environment environment;
    std::string log_dir;  // empty: no files
    /// Something that the user should know; empty where there is nothing.
    std::string remark;

    [[nodiscard]] int world_size() const { return local_size * options.nnodes; }
    [[nodiscard]] dptk::detail::RankPlace place(int local_rank) const;
};

/// Throws dptk::ArgumentError where this host does not have what the options ask for.
[[nodiscard]] Job make_job(const Options& options, const std::string& program);

}  // namespace run
