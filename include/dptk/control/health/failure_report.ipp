#pragma once

#include "dptk/control/health/failure_report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iterator>

#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

/// Begins the last line of a serialized cause, which lists the ranks.
inline constexpr std::string_view before_ranks = "\n\x1f";

inline constexpr std::string_view failure_kinds[] = {"cause", "agreed", "consequence"};  // by FailureKind

DPTK_INLINE std::string to_text(const FailureCause& cause) {
    std::string out = cause.text;
    for (std::size_t i = 0; i < cause.ranks.size(); ++i)
        out += text(i == 0 ? before_ranks : " ", cause.ranks[i]);
    return out;
}

DPTK_INLINE FailureCause parse_cause(std::string_view serialized) {
    const std::size_t end = serialized.rfind(before_ranks);
    FailureCause cause{std::string(serialized.substr(0, end))};
    if (end == std::string_view::npos) return cause;
    std::string_view list = serialized.substr(end + before_ranks.size());
    for (int rank = 0; parse_number(next_word(list), rank);) cause.ranks.push_back(rank);
    return cause;
}

DPTK_INLINE std::vector<int> blamed_ranks(const FailureCause& cause) {
    if (!cause.ranks.empty()) return cause.ranks;
    std::string_view words = cause.text;
    if (next_word(words) != "rank") return {};
    std::string_view number = next_word(words);
    if (number.ends_with(':')) number.remove_suffix(1);
    int rank = 0;
    return parse_number(number, rank) ? std::vector{rank} : std::vector<int>();
}

DPTK_INLINE void write_failure_report(const char* path, const FailureReport& report) noexcept {
    std::FILE* const file = std::fopen(path, "we");
    if (file == nullptr) return;
    const std::string content = text(failure_kinds[static_cast<std::size_t>(report.kind)], '\n',
                                     to_text({report.text, report.ranks}));
    std::fwrite(content.data(), 1, content.size(), file);
    std::fclose(file);
}

DPTK_INLINE std::optional<FailureReport> read_failure_report(const char* path) {
    std::FILE* const file = std::fopen(path, "re");
    if (file == nullptr) return std::nullopt;
    std::string content(std::size_t{1} << 16, '\0');
    content.resize(std::fread(content.data(), 1, content.size(), file));
    std::fclose(file);

    const std::size_t line = content.find('\n');
    const auto* const kind =
        std::find(std::begin(failure_kinds), std::end(failure_kinds), content.substr(0, line));
    if (kind == std::end(failure_kinds)) return std::nullopt;
    FailureCause cause;
    if (line != std::string::npos) cause = parse_cause(std::string_view(content).substr(line + 1));
    while (!cause.text.empty() && cause.text.back() == '\n') cause.text.pop_back();
    return FailureReport{static_cast<FailureKind>(kind - std::begin(failure_kinds)), cause.text, cause.ranks};
}

}  // namespace DPTK_NAMESPACE::detail
