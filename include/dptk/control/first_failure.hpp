/// Which rank of a job failed first. One failure makes others within milliseconds, in an order that says
/// little, so the time counts only among ranks that fail alike: see doubt().
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "dptk/control/child_process.hpp"
#include "dptk/control/failure_note.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

/// A rank that has ended.
struct RankEnd {
    int rank = 0;
    pid_t process = 0;
    ChildEnd end;
    std::chrono::steady_clock::duration after{};  ///< since the ranks were started
    std::optional<FailureNote> note;
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

namespace detail {

enum class Doubt { none, little, some, consequence, no_failure };

/// How little this end tells about the cause.
[[nodiscard]] inline Doubt doubt(const RankEnd& rank) {
    if (rank.end.well()) return Doubt::no_failure;
    if (rank.note && rank.note->kind == FailureKind::consequence) return Doubt::consequence;
    const int signal = rank.end.signal();
    if (rank.asked_to_end) {  // but it may have been on its way out when it was asked
        const bool ours = signal == 0 || signal == SIGTERM || signal == SIGKILL;
        return rank.note || !ours ? Doubt::some : Doubt::no_failure;
    }
    // A rank that loses its peer may well exit with 1, or write to a closed pipe, before the peer is quite
    // dead.
    return rank.note || (signal != 0 && signal != SIGPIPE) ? Doubt::none : Doubt::little;
}

[[nodiscard]] inline std::string stopped_text(std::span<const StoppedRank> stopped) {
    std::string out;
    for (const StoppedRank& rank : stopped) {
        if (!out.empty()) out += ", ";
        out += text("rank ", rank.rank, " is stopped (", signal_name(rank.signal), ")");
    }
    return out;
}

}  // namespace detail

/// Nothing where no rank has failed.
[[nodiscard]] inline std::optional<FirstFailure> find_first_failure(std::span<const RankEnd> ends,
                                                                    std::span<const StoppedRank> stopped) {
    using detail::Doubt;
    const auto first = std::min_element(ends.begin(), ends.end(), [](const RankEnd& a, const RankEnd& b) {
        const Doubt doubt_a = detail::doubt(a);
        const Doubt doubt_b = detail::doubt(b);
        return doubt_a != doubt_b ? doubt_a < doubt_b : a.after < b.after;
    });
    if (first == ends.end() || detail::doubt(*first) == Doubt::no_failure) return std::nullopt;

    FirstFailure failure{FirstFailure::Kind::own, *first, {}};
    if (detail::doubt(*first) != Doubt::consequence) {
        failure.headline = detail::text("rank ", first->rank, " failed first: ", first->end.text());
    } else if (!stopped.empty()) {
        failure.kind = FirstFailure::Kind::stopped;
        failure.headline =
            detail::text(detail::stopped_text(stopped), ", the others gave it up: ", first->note->text);
    } else {
        failure.kind = FirstFailure::Kind::elsewhere;
        failure.headline = detail::text("the first failure is elsewhere: ", first->note->text);
    }
    return failure;
}

}  // namespace dptk
