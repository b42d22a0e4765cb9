// What dptk-run says about a failure.
#pragma once

#include <dptk/control/health/first_failure.hpp>

#include <string>

#include "attempt.hpp"
#include "job.hpp"

namespace run {

/// Several lines, without the end of the last: which rank failed first, how, where, when, and what it
/// printed.
[[nodiscard]] std::string failure_report(const Job& job, const AttemptResult& result,
                                         const dptk::detail::FirstFailure& failure);

}  // namespace run
