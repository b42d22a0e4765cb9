// How long an all-reduce takes, from a few bytes (latency) to as much as a large model's gradients
// (bandwidth), and whether its result is right.
#pragma once

#include <dptk/comm/process_group.hpp>

#include <functional>
#include <vector>

#include "facts.hpp"
#include "options.hpp"

namespace info {

/// From 4 B to 64 MiB; stops earlier where the next size would take too long. `on_result` gets each size as
/// soon as it is measured. Collective. Throws BackendError, on all ranks, where a sum is wrong.
[[nodiscard]] std::vector<AllReduceResult> run_all_reduce_test(
    dptk::ProcessGroup& group, Effort effort, const std::function<void(const AllReduceResult&)>& on_result);

}  // namespace info
