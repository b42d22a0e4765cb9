// Runs a test as several ranks: as 1, 2, 3, 4 and 8 threads or, where DPTK_TEST_RANKS is in the environment,
// as the ranks that a launcher has started.
#pragma once

#include <dptk/ddp.hpp>

#include <cstdlib>

namespace test {

/// fn(dptk::ProcessGroup&) at each number of ranks.
template <class Fn>
void on_ranks(Fn&& fn) {
    if (std::getenv("DPTK_TEST_RANKS") != nullptr) {
        dptk::ProcessGroup group = dptk::init_process_group();
        return static_cast<void>(fn(group));
    }
    for (const int ranks : {1, 2, 3, 4, 8}) dptk::launch_threads(ranks, fn);
}

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
