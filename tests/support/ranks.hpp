// Runs a test as several ranks: as 1, 2, 3, 4 and 8 threads or, where DPTK_TEST_RANKS is in the environment,
// as the ranks that a launcher has started.
#pragma once

#include <dptk/ddp.hpp>

#include <functional>
#include <string>
#include <string_view>

namespace test {

/// Whether a launcher has started this test's ranks.
[[nodiscard]] bool is_launched();

/// fn at each number of ranks. Of launched ranks, where DPTK_TEST_RANKS=groups, at each number up to theirs:
/// in groups of the first of them.
void on_ranks(const std::function<void(dptk::ProcessGroup&)>& fn);

enum class Agreed { any, yes };

/// Whether fn throws an E, and one that says so where all ranks must throw it; `text` is then its message.
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

[[nodiscard]] inline bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace test
