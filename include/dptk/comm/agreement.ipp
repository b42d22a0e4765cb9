#pragma once

#include "dptk/comm/agreement.hpp"

#include <utility>

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] DPTK_INLINE std::vector<std::string_view> lines_of(std::string_view table) {
    std::vector<std::string_view> lines;
    while (!table.empty()) {
        const std::size_t end = table.find('\n');
        lines.push_back(table.substr(0, end));
        table.remove_prefix(end == std::string_view::npos ? table.size() : end + 1);
    }
    return lines;
}

/// Divides a line of a table into the parameter that the line is about and its description.
[[nodiscard]] DPTK_INLINE std::pair<std::string_view, std::string_view> divide_line(std::string_view line) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) return {{}, line};
    return {line.substr(0, tab), line.substr(tab + 1)};
}

DPTK_INLINE std::optional<TableDifference> first_difference(std::string_view table, std::string_view other,
                                                            std::size_t rank) {
    const std::vector<std::string_view> lines = lines_of(table);
    const std::vector<std::string_view> others = lines_of(other);
    for (std::size_t i = 0; i < std::max(lines.size(), others.size()); ++i) {
        const auto [its, expected] = divide_line(i < lines.size() ? lines[i] : "no further entry");
        const auto [parameter, found] = divide_line(i < others.size() ? others[i] : "no further entry");
        if (expected == found) continue;
        return TableDifference{text("rank ", rank, " has ", found, ", but rank 0 has ", expected),
                               std::string(parameter.empty() ? its : parameter)};
    }
    return std::nullopt;
}

DPTK_INLINE Problems combine_problems(const std::vector<std::string>& problems,
                                      const std::vector<std::string>& parameters) {
    Problems out;
    const bool are_equal = detail::all_equal(problems);
    for (std::size_t rank = 0; rank < problems.size(); ++rank) {
        if (problems[rank].empty()) continue;
        if (!out.context.rank) out.context = {.rank = static_cast<int>(rank), .parameter = parameters[rank]};
        if (!are_equal) out.text += text(out.text.empty() ? "" : "; ", "rank ", rank, ": ", problems[rank]);
    }
    if (are_equal) out.text = problems.size() == 1 ? problems[0] : "all ranks: " + problems[0];
    return out;
}

}  // namespace DPTK_NAMESPACE::detail
