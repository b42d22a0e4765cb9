// Message benchmark: measures the latency and the bandwidth of messages between rank 0 and a rank of each
// other host, or rank 1 if there is only one host.
#pragma once

#include <dptk/comm/process_group.hpp>

#include <functional>
#include <vector>

#include "facts.hpp"
#include "options.hpp"

namespace info {

/// Measures one pair of ranks after the other. Calls `on_result` for each as soon as it is measured.
/// Collective; needs at least two ranks.
[[nodiscard]] std::vector<MessageResult> run_message_test(
    dptk::ProcessGroup& group, const JobFacts& job, Effort effort,
    const std::function<void(const MessageResult&)>& on_result);

}  // namespace info
