// Compute benchmark, to find slow ranks: all ranks compute the same forward passes of the same neural network
// at the same time. In training, a rank that is slower than the others slows all ranks.
#pragma once

#include <dptk/comm/process_group.hpp>

#include "facts.hpp"
#include "options.hpp"

namespace info {

/// Runs the benchmark. Each rank uses as many threads as its share of its host's cores, or 1 if the number of
/// threads cannot be set. Collective.
[[nodiscard]] ComputeResult run_compute_test(dptk::ProcessGroup& group, const JobFacts& job, Effort effort);

}  // namespace info
