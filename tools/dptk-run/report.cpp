#include "report.hpp"

#include <dptk/control/net/host.hpp>
#include <dptk/core/detail/number_text.hpp>
#include <dptk/core/detail/text.hpp>

#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>

namespace run {

namespace {

using dptk::detail::host_name;
using dptk::detail::text;
using Kind = dptk::detail::FirstFailure::Kind;

std::string seconds_text(std::chrono::steady_clock::duration time) {
    return dptk::detail::fixed_text(std::chrono::duration<double>(time).count(), 2) + " s";
}

/// The text with `indent` before each of its lines.
std::string indented(std::string_view lines, std::string_view indent) {
    std::string out(indent);
    for (const char c : lines) {
        out += c;
        if (c == '\n') out += indent;
    }
    return out;
}

/// The last lines of at most so many ranks are shown.
constexpr std::size_t max_shown = 3;

std::string last_lines(const Tail& tail, int rank) {
    if (tail.lines().empty()) return text("\n  rank ", rank, " has printed nothing");
    std::string out = text("\n  the last lines of rank ", rank, ":");
    for (const std::string& line : tail.lines()) out += text("\n    ", line);
    return out;
}

}  // namespace

std::string failure_report(const Job& job, const AttemptResult& result,
                           const dptk::detail::FirstFailure& failure) {
    const int first_rank = job.place(0).rank;
    const dptk::detail::RankEnd& who = failure.who;
    std::string out = failure.headline;
    if (failure.kind == Kind::own && who.note && !who.note->text.empty()) {
        out += text('\n', indented(who.note->text, "  "));
    }
    if (failure.kind != Kind::own) {
        out += text("\n  first noticed by rank ", who.rank, ", which ended with ", who.end.text());
    }
    out += text("\n  local rank ", who.rank - first_rank, " on ", host_name(), ", process ", who.process,
                ", ", seconds_text(who.after), " after the start");
    for (const int rank : std::span(failure.ranks).first(std::min(failure.ranks.size(), max_shown)))
        out += last_lines(result.tails[static_cast<std::size_t>(rank - first_rank)], rank);
    return out;
}

}  // namespace run
