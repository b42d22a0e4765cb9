// All-reduce benchmark: measures the time of an all-reduce, from a few bytes (latency) to the size of a large
// model's gradients (bandwidth), and checks its result.
#pragma once

#include <dptk/comm/process_group.hpp>

#include <functional>
#include <vector>

#include "facts.hpp"
#include "options.hpp"

namespace info {

/// Measures sizes from 4 B to 64 MiB; stops earlier if the next size would take too long. Calls `on_result`
/// for each size as soon as it is measured. Collective. Throws BackendError, on all ranks, if a sum is wrong.
[[nodiscard]] std::vector<AllReduceResult> run_all_reduce_test(
    dptk::ProcessGroup& group, Effort effort, const std::function<void(const AllReduceResult&)>& on_result);

}  // namespace info
