// Compute benchmark, to find slow ranks: all ranks compute the same passes of the same network at the same
// time. In training, a rank that is slower than the others slows all of them.
#pragma once

#include <dptk/comm/process_group.hpp>

#include "facts.hpp"
#include "options.hpp"

namespace info {

/// Runs the benchmark, with as many threads on each rank as its share of its host's cores. Collective.
[[nodiscard]] ComputeResult run_compute_test(dptk::ProcessGroup& group, const JobFacts& job, Effort effort);

}  // namespace info
