// Runs a test in several ranks: in 1, 2, 3, 4 and 8 threads, or, if DPTK_TEST_RANKS is set, in the ranks that
// a launcher has started.
#pragma once

#include <dptk/ddp.hpp>

#include <functional>
#include <string>
#include <string_view>

namespace test {

/// Returns whether a launcher has started this test's ranks.
[[nodiscard]] bool is_launched();

/// Runs fn with each number of ranks. Launched ranks run it once, in a group of all ranks. With
/// DPTK_TEST_RANKS=groups they run it in a subgroup of the first n ranks, for each n up to their number.
void on_ranks(const std::function<void(dptk::ProcessGroup&)>& fn);

enum class Agreed { any, yes };

/// Returns whether fn throws an E, which must be marked as agreed if `agreed` is yes. Stores its message in
/// `text`.
template <class E, class Fn>
[[nodiscard]] bool throws(std::string& text, Fn&& fn, Agreed agreed = Agreed::any) {
    try {
        fn();
    } catch (const E& error) {
        text = error.what();
        return agreed == Agreed::any || error.agreed();
    }
    return false;
}

/// Forks a process that runs fn and ends by exit() with the status that fn returns. Returns that status, or
/// -1 if the child ends in another way or runs longer than 60 s.
[[nodiscard]] int exit_status_of_child(const std::function<int()>& fn);

[[nodiscard]] inline bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace test
