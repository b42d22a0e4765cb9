/// Collective checks, such as on_all_or_none(), that succeed on all ranks or throw the same error on all
/// ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/verbs.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Returns the texts of all ranks, in rank order. The texts may differ in length. Collective.
template <class Group>
[[nodiscard]] std::vector<std::string> all_gather_text(Group& group, std::string_view own) {
    const UnevenElements<char> all = group.all_gather_uneven(own);
    std::vector<std::string> texts;
    for (int rank = 0; rank < group.size(); ++rank) {
        const std::span<const char> text = all.of(rank);
        texts.emplace_back(text.begin(), text.end());
    }
    return texts;
}

/// The problems of all ranks, in one text, and the first rank that has one, with the parameter that its
/// problem is about.
struct Problems {
    std::string text;
    ErrorContext context;
};

/// Combines the ranks' problems: "rank 1: ...; rank 3: ...", or "all ranks: ..." if all have the same
/// problem.
[[nodiscard]] Problems combine_problems(const std::vector<std::string>& problems,
                                        const std::vector<std::string>& parameters);

/// Returns the problems of all ranks. `own` is this rank's problem, or empty, and `parameter` the parameter
/// that it is about, or empty. Collective.
template <class Group>
[[nodiscard]] Problems gather_problems(Group& group, std::string_view own, std::string_view parameter = {}) {
    const std::vector<std::string> problems = all_gather_text(group, own);
    return combine_problems(problems, all_gather_text(group, parameter));
}

/// Marks `error` as agreed and throws it. All ranks must make this call with the same error; the group then
/// stays usable.
template <class Group, class E>
[[noreturn]] void throw_agreed(Group& group, E error) {
    detail::ErrorAccess::mark_agreed(error);
    group.engine().note_agreed(error);
    throw error;
}

/// If at least one rank's `problem` is not empty, throws an E with the problems of all ranks, on all ranks.
/// Collective.
template <class E, class Group>
void check_no_problem(Group& group, std::string_view problem, std::string_view parameter = {}) {
    const bool any =
        group.all_reduce_value(static_cast<std::uint8_t>(problem.empty() ? 0 : 1), ReduceOp::max) != 0;
    if (!any) return;
    Problems problems = gather_problems(group, problem, parameter);
    throw_agreed(group, E(problems.text, std::move(problems.context)));
}

/// A line in which the tables of two ranks differ, and the parameter that it is about, or empty.
struct TableDifference {
    std::string text;
    std::string parameter;
};

/// Describes the first line in which `other`, the table of rank `rank`, differs from `table`, the table of
/// rank 0. Returns nothing if the tables are equal.
[[nodiscard]] std::optional<TableDifference> first_difference(std::string_view table, std::string_view other,
                                                              std::size_t rank);

/// If the ranks' tables differ, throws MismatchError on all ranks, with the first line in which a table
/// differs from rank 0's. Each line of a table describes something that must be equal on all ranks. A line
/// about a parameter begins with the parameter's name and a tab, which the message leaves out. Collective.
template <class Group>
void check_equal_tables(Group& group, std::string_view what, std::string_view table) {
    const std::vector<std::uint64_t> hashes = group.all_gather_value(fnv1a(table));
    if (detail::all_equal(hashes)) return;
    const std::vector<std::string> tables = all_gather_text(group, table);
    for (std::size_t rank = 1; rank < tables.size(); ++rank) {
        std::optional<TableDifference> difference = first_difference(tables[0], tables[rank], rank);
        if (difference)
            throw_agreed(group, MismatchError(text("the ranks' ", what, " differ: ", difference->text),
                                              {.rank = static_cast<int>(rank),
                                               .peer = 0,
                                               .parameter = std::move(difference->parameter)}));
    }
}

}  // namespace detail

/// Runs `fn` on all ranks and returns this rank's result by value. If `fn` throws on any rank, all ranks
/// throw an Error that names each rank on which `fn` has thrown, with the text of the exception. Use it for
/// work that may fail on some ranks only, such as reading a file. Collective; blocks. `fn` itself must not
/// communicate. In an elastic job, `fn` is not called on a rank without which the job has continued.
template <class Group, class Fn>
auto on_all_or_none(Group& group, Fn&& fn) {
    using Result = std::remove_cvref_t<decltype(fn())>;
    constexpr bool returns = !std::is_void_v<Result>;
    std::optional<std::conditional_t<returns, Result, bool>> result;
    std::string problem;
    if constexpr (requires { group.check_membership(); }) group.check_membership();
    try {
        if constexpr (returns) {
            result.emplace(fn());
        } else {
            fn();
        }
    } catch (const std::exception& error) {
        problem = error.what();
        if (problem.empty()) problem = "an exception without a text";
    } catch (...) {
        problem = "an exception that is not derived from std::exception";
    }
    detail::check_no_problem<Error>(group, problem);
    if constexpr (returns) return std::move(*result);
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/agreement.ipp"
#endif
