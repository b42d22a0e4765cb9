// The command line of dptk-run.
#pragma once

#include <dptk/control/launch/detail/rank_environment.hpp>

#include <optional>
#include <string>
#include <vector>

namespace run {

/// A selection of a rank's two output streams.
enum class Streams { none, out, err, all };

[[nodiscard]] inline bool includes(Streams streams, Streams one) {
    return streams == Streams::all || streams == one;
}

struct Options {
    int nnodes = 1;                    // with --elastic: the number with which the job begins
    int max_nnodes = 1;                // with --elastic: how many there may be
    std::string nproc_per_node = "1";  // a number, or auto, gpu, cpu
    int node_rank = 0;                 // -1: the hosts agree on it
    std::string master_addr;           // empty: loopback address
    int master_port = 0;               // 0: a free port
    std::string run_id;                // empty: a random name
    int max_restarts = 0;
    bool elastic = false;
    std::string shutdown_timeout;  // seconds; empty: DPTK_SHUTDOWN_TIMEOUT, or the default
    std::string log_dir;           // empty: no files
    Streams redirects = Streams::none;
    Streams tee = Streams::none;
    std::vector<dptk::detail::EnvironmentVariable> environment;
    bool pass_local_rank = false;  // --local_rank=N is the program's first argument
    std::vector<std::string> command;
};

/// Result of parsing the command line: options to run with, or else a text to print and an exit status.
struct ParsedOptions {
    std::optional<Options> options;
    std::string text;
    int exit_status = 0;
};

[[nodiscard]] ParsedOptions parse_options(int argc, char** argv);

}  // namespace run
