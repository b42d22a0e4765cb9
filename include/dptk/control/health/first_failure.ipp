#pragma once

#include "dptk/control/health/first_failure.hpp"

#include <signal.h>

#include <algorithm>
#include <csignal>
#include <string_view>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

enum class Doubt { none, agreed, little, some, consequence, no_failure };

/// Returns how doubtful it is that this rank is the cause of the failure.
[[nodiscard]] DPTK_INLINE Doubt doubt(const RankEnd& rank) {
    if (rank.end.well()) return Doubt::no_failure;
    if (rank.note && rank.note->kind == FailureKind::consequence) return Doubt::consequence;
    if (rank.note && rank.note->kind == FailureKind::agreed) return Doubt::agreed;
    const int signal = rank.end.signal();
    if (rank.asked_to_end) {  // it may have been failing already when it was sent the signal
        const bool ours = signal == 0 || signal == SIGTERM || signal == SIGKILL;
        return rank.note || !ours ? Doubt::some : Doubt::no_failure;
    }
    // A rank that loses its peer may exit with status 1, or by SIGPIPE, before the end of the peer is
    // reported.
    return rank.note || (signal != 0 && signal != SIGPIPE) ? Doubt::none : Doubt::little;
}

/// Returns what a rank that the others blame did when they failed; an empty string if it has reported the
/// same failure as they.
[[nodiscard]] DPTK_INLINE std::string state_text(const RankEnd& rank, std::span<const StoppedRank> stopped) {
    const auto stop = detail::find(stopped, rank.rank, &StoppedRank::rank);
    if (stop != stopped.end())
        return text("rank ", rank.rank, " is stopped (", signal_name(stop->signal), ")");
    if (rank.asked_to_end) return text("rank ", rank.rank, " was still running");
    if (rank.note) return {};
    return text("rank ", rank.rank, " ended with ", rank.end.text());
}

/// Describes a failure that no rank of this host has reported as its own.
[[nodiscard]] DPTK_INLINE FirstFailure reported_failure(const RankEnd& who, std::span<const RankEnd> ends,
                                                        std::span<const StoppedRank> stopped) {
    FirstFailure failure{FirstFailure::Kind::reported, who, {}, {}};
    const std::vector<int> blamed = blamed_ranks({who.note->text, who.note->ranks});
    const bool is_agreed = who.note->kind == FailureKind::agreed;
    std::string states;
    for (const RankEnd& rank : ends) {
        const bool is_stopped = detail::contains(stopped, rank.rank, &StoppedRank::rank);
        if (!is_stopped && !detail::contains(blamed, rank.rank)) continue;
        failure.ranks.push_back(rank.rank);
        const std::string state = is_agreed ? std::string() : state_text(rank, stopped);
        if (!state.empty()) states += text(states.empty() ? "" : ", ", state);
    }
    const bool is_elsewhere = failure.ranks.empty() && !blamed.empty();
    if (failure.ranks.empty()) failure.ranks.push_back(who.rank);
    const std::string_view before = is_agreed         ? "all ranks have thrown the same error: "
                                    : is_elsewhere    ? "the first failure is on another host: "
                                    : !states.empty() ? "; the other ranks reported: "
                                                      : "";
    failure.headline = text(states, before, who.note->text);
    return failure;
}

DPTK_INLINE std::optional<FirstFailure> find_first_failure(std::span<const RankEnd> ends,
                                                           std::span<const StoppedRank> stopped) {
    const auto first = std::min_element(ends.begin(), ends.end(), [](const RankEnd& a, const RankEnd& b) {
        const Doubt doubt_a = doubt(a);
        const Doubt doubt_b = doubt(b);
        return doubt_a != doubt_b ? doubt_a < doubt_b : a.after < b.after;
    });
    if (first == ends.end() || doubt(*first) == Doubt::no_failure) return std::nullopt;

    if (doubt(*first) == Doubt::agreed || doubt(*first) == Doubt::consequence)
        return reported_failure(*first, ends, stopped);
    FirstFailure failure{FirstFailure::Kind::own, *first, {first->rank}, {}};
    failure.headline = text("rank ", first->rank, " failed first: ", first->end.text());
    for (const int other : first->note ? first->note->ranks : std::vector<int>()) {
        const bool is_here = detail::contains(ends, other, &RankEnd::rank);
        if (is_here && other != first->rank) failure.ranks.push_back(other);
    }
    return failure;
}

}  // namespace DPTK_NAMESPACE::detail
