// The failure report that dptk-run prints.
#pragma once

#include <dptk/control/health/first_failure.hpp>

#include <string>

#include "attempt.hpp"
#include "job.hpp"

namespace run {

/// Describes the first failure: which rank failed, how, where, when, and what it printed last. Returns
/// several lines, without a newline at the end.
[[nodiscard]] std::string failure_report(const Job& job, const AttemptResult& result,
                                         const dptk::detail::FirstFailure& failure);

}  // namespace run
