// Calls in which one rank disagrees with the others, and the table of docs/errors.md that says what happens
// then.
#pragma once

#include <dptk/comm/process_group.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace test {

/// In what the call of the last rank differs from the calls of the others.
enum class Disagreement { count, empty, dtype, operation, root, verb, order };

inline constexpr Disagreement all_disagreements[] = {
    Disagreement::count, Disagreement::empty, Disagreement::dtype, Disagreement::operation,
    Disagreement::root,  Disagreement::verb,  Disagreement::order};

[[nodiscard]] std::string_view name_of(Disagreement kind) noexcept;

/// Whether calls of this verb can differ in this way: only some verbs have a root.
[[nodiscard]] bool can_differ(dptk::Verb verb, Disagreement kind) noexcept;

/// Makes the call. The last rank makes the one that differs.
void make_differing_calls(dptk::ProcessGroup& group, dptk::Verb verb, Disagreement kind);

/// A verb, a kind of disagreement, and what docs/errors.md says about them.
struct DisagreementCell {
    dptk::Verb verb = dptk::Verb::barrier;
    Disagreement kind = Disagreement::count;
    /// "error", "ends" or "undefined".
    std::string expected;
};

/// Returns the cells of one column of the table, such as "Gloo", for all verbs and all ways to differ.
[[nodiscard]] std::vector<DisagreementCell> disagreement_cells(std::string_view column);

/// Checks, in a group of several ranks, that all ranks throw the same agreed MismatchError, that they do so
/// within seconds, and that the group is usable afterwards.
void check_is_agreed_error(dptk::ProcessGroup& group, const DisagreementCell& cell);

}  // namespace test
