/// First-failure detection: finds the rank of a job that failed first. One failure causes others within
/// milliseconds, in an arbitrary order, so times are compared only among ranks that are equally likely to be
/// the cause: see doubt() in the .ipp file.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dptk/control/health/failure_report.hpp"
#include "dptk/control/process/child_process.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// How and when a rank ended.
struct RankEnd {
    int rank = 0;
    pid_t process = 0;
    ChildEnd end;
    std::chrono::steady_clock::duration after{};  ///< from the start of the ranks to the end of this rank
    std::optional<FailureReport> note;
    bool asked_to_end = false;  ///< whether the launcher sent the rank a signal before the rank ended
};

/// A rank that was stopped, for example by SIGSTOP or a debugger, when other ranks failed.
struct StoppedRank {
    int rank = 0;
    int signal = 0;
};

struct FirstFailure {
    enum class Kind {
        own,      ///< the rank failed by itself
        reported  ///< all ranks that failed report a failure of others, or an error that all ranks have
                  ///< thrown
    };
    Kind kind = Kind::own;
    /// The rank that failed first or, if no rank failed by itself, the failed rank that ended first.
    RankEnd who;
    /// The ranks of this host whose output may show the cause: those that are to blame, or else `who`.
    std::vector<int> ranks;
    /// One sentence: "rank 1 failed first: killed by SIGKILL (9)".
    std::string headline;
};

/// Finds the first failure. Returns nullopt if no rank has failed.
[[nodiscard]] std::optional<FirstFailure> find_first_failure(std::span<const RankEnd> ends,
                                                             std::span<const StoppedRank> stopped);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/first_failure.ipp"
#endif
