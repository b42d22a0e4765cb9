/// Which rank of a job failed first. One failure makes others within milliseconds, in an order that says
/// little, so the time counts only among ranks that fail alike: see doubt().
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "dptk/control/health/failure_report.hpp"
#include "dptk/control/process/child_process.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A rank that has ended.
struct RankEnd {
    int rank = 0;
    pid_t process = 0;
    ChildEnd end;
    std::chrono::steady_clock::duration after{};  ///< since the ranks were started
    std::optional<FailureReport> note;
    bool asked_to_end = false;  ///< whether it had been sent a signal by then
};

/// A rank that was stopped (by SIGSTOP, a debugger, ...) when others failed.
struct StoppedRank {
    int rank = 0;
    int signal = 0;
};

struct FirstFailure {
    enum class Kind {
        own,       ///< the rank failed by itself
        stopped,   ///< all failures are consequences, and a rank of this host was stopped
        elsewhere  ///< all failures are consequences, and nothing on this host explains them
    };
    Kind kind = Kind::own;
    /// The rank that failed first or, among consequences, that noticed first.
    RankEnd who;
    /// One sentence: "rank 1 failed first: killed by SIGKILL (9)".
    std::string headline;
};

/// Nothing where no rank has failed.
[[nodiscard]] std::optional<FirstFailure> find_first_failure(std::span<const RankEnd> ends,
                                                             std::span<const StoppedRank> stopped);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/first_failure.ipp"
#endif
