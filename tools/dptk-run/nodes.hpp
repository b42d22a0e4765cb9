// Gives each host of a job its --node-rank, if the command line does not.
#pragma once

#include <string>

#include "job.hpp"

namespace run {

/// Meets the dptk-run processes of the job's other hosts at --master-addr and --master-port, and returns the
/// node rank of this host. The host that has this address is node 0; the others are numbered in the order in
/// which they arrive. Blocks until all hosts have arrived; afterwards, the port is free. Throws TimeoutError
/// if a host does not arrive within DPTK_TIMEOUT, and ArgumentError if the hosts expect different numbers of
/// hosts, or if there are too many.
[[nodiscard]] int join_nodes(const Job& job);

/// Returns whether this host has an address of this name.
[[nodiscard]] bool is_on_this_host(const std::string& host);

}  // namespace run
