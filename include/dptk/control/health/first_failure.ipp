#pragma once

#include "dptk/control/health/first_failure.hpp"

#include <signal.h>

#include <algorithm>
#include <csignal>

#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

enum class Doubt { none, little, some, consequence, no_failure };

/// Returns how doubtful it is that this rank is the cause of the failure.
[[nodiscard]] DPTK_INLINE Doubt doubt(const RankEnd& rank) {
    if (rank.end.well()) return Doubt::no_failure;
    if (rank.note && rank.note->kind == FailureKind::consequence) return Doubt::consequence;
    const int signal = rank.end.signal();
    if (rank.asked_to_end) {  // it may have been failing already when it was sent the signal
        const bool ours = signal == 0 || signal == SIGTERM || signal == SIGKILL;
        return rank.note || !ours ? Doubt::some : Doubt::no_failure;
    }
    // A rank that loses its peer may exit with status 1, or by SIGPIPE, before the end of the peer is
    // reported.
    return rank.note || (signal != 0 && signal != SIGPIPE) ? Doubt::none : Doubt::little;
}

[[nodiscard]] DPTK_INLINE std::string stopped_text(std::span<const StoppedRank> stopped) {
    std::string out;
    for (const StoppedRank& rank : stopped) {
        if (!out.empty()) out += ", ";
        out += text("rank ", rank.rank, " is stopped (", signal_name(rank.signal), ")");
    }
    return out;
}

DPTK_INLINE std::optional<FirstFailure> find_first_failure(std::span<const RankEnd> ends,
                                                           std::span<const StoppedRank> stopped) {
    const auto first = std::min_element(ends.begin(), ends.end(), [](const RankEnd& a, const RankEnd& b) {
        const Doubt doubt_a = doubt(a);
        const Doubt doubt_b = doubt(b);
        return doubt_a != doubt_b ? doubt_a < doubt_b : a.after < b.after;
    });
    if (first == ends.end() || doubt(*first) == Doubt::no_failure) return std::nullopt;

    FirstFailure failure{FirstFailure::Kind::own, *first, {}};
    if (doubt(*first) != Doubt::consequence) {
        failure.headline = text("rank ", first->rank, " failed first: ", first->end.text());
    } else if (!stopped.empty()) {
        failure.kind = FirstFailure::Kind::stopped;
        failure.headline = text(stopped_text(stopped), "; the other ranks reported: ", first->note->text);
    } else {
        failure.kind = FirstFailure::Kind::remote;
        failure.headline = text("the first failure is on another host: ", first->note->text);
    }
    return failure;
}

}  // namespace DPTK_NAMESPACE::detail
