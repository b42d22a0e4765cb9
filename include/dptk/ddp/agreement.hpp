/// Collective checks whose outcome is the same on all ranks: either all go on, or all throw the same error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/process_group.hpp"

namespace dptk::detail {

/// The texts of all ranks, of any lengths, in rank order. Collective.
[[nodiscard]] inline std::vector<std::string> all_gather_text(ProcessGroup& group, std::string_view own) {
    const std::vector<std::uint64_t> lengths = group.all_gather_value(static_cast<std::uint64_t>(own.size()));
    const std::size_t longest = static_cast<std::size_t>(std::ranges::max(lengths));
    std::string padded(own);
    padded.resize(longest);
    std::string all(longest * lengths.size(), '\0');
    group.all_gather(padded, all);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        texts.push_back(all.substr(i * longest, static_cast<std::size_t>(lengths[i])));
    }
    return texts;
}

/// The problems of all ranks that have one, as one text: "rank 1: ...; rank 3: ...". Collective.
[[nodiscard]] inline std::string gather_problems(ProcessGroup& group, std::string_view own) {
    const std::vector<std::string> problems = all_gather_text(group, own);
    std::string out;
    for (std::size_t rank = 0; rank < problems.size(); ++rank) {
        if (problems[rank].empty()) continue;
        out += text(out.empty() ? "" : "; ", "rank ", rank, ": ", problems[rank]);
    }
    return out;
}

/// Lines of one rank that must be equal on all: how it names what it has.
[[nodiscard]] inline std::vector<std::string_view> lines_of(std::string_view table) {
    std::vector<std::string_view> lines;
    while (!table.empty()) {
        const std::size_t end = table.find('\n');
        lines.push_back(table.substr(0, end));
        table.remove_prefix(end == std::string_view::npos ? table.size() : end + 1);
    }
    return lines;
}

/// The first difference between two ranks' tables; empty where there is none.
[[nodiscard]] inline std::string first_difference(std::string_view table, std::string_view other, std::size_t rank) {
    const std::vector<std::string_view> lines = lines_of(table);
    const std::vector<std::string_view> others = lines_of(other);
    for (std::size_t i = 0; i < std::max(lines.size(), others.size()); ++i) {
        const std::string_view expected = i < lines.size() ? lines[i] : "no further parameter";
        const std::string_view found = i < others.size() ? others[i] : "no further parameter";
        if (expected != found) return text("rank ", rank, " has ", found, ", where rank 0 has ", expected);
    }
    return {};
}

/// Where a rank has a problem, all throw ArgumentError with all problems. Otherwise, where the tables differ (lines
/// that name what must be equal), all throw MismatchError with the first difference to rank 0. Collective.
inline void check_agreement(ProcessGroup& group, std::string_view problem, std::string_view table) {
    const auto throw_agreed = [&]<class E>(const E& error) {
        group.channel().expect_agreed_error();
        throw error;
    };

    std::uint64_t hash = 14695981039346656037U;  // FNV-1a
    for (const char letter : table) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211U;
    const std::vector<std::uint64_t> hashes = group.all_gather_value(hash);
    const bool any_problem = group.all_reduce_value<std::uint8_t>(problem.empty() ? 0 : 1, ReduceOp::max) != 0;
    if (any_problem) throw_agreed(ArgumentError(gather_problems(group, problem)));
    if (std::ranges::adjacent_find(hashes, std::ranges::not_equal_to{}) == hashes.end()) return;

    const std::vector<std::string> tables = all_gather_text(group, table);
    for (std::size_t rank = 1; rank < tables.size(); ++rank) {
        const std::string difference = first_difference(tables[0], tables[rank], rank);
        if (!difference.empty()) throw_agreed(MismatchError("the ranks' models differ: " + difference));
    }
}

}  // namespace dptk::detail
