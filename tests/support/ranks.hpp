// Runs a test as several ranks: as 1, 2, 3, 4 and 8 threads or, in a program built with DPTK_TEST_RANKS, as the
// ranks that a launcher has started.
#pragma once

#include <dptk/ddp.hpp>

namespace test {

/// fn(dptk::ProcessGroup&) at each number of ranks.
template <class Fn>
void on_ranks(Fn&& fn) {
#ifdef DPTK_TEST_RANKS
    dptk::ProcessGroup group = dptk::init_process_group();
    fn(group);
#else
    for (const int ranks : {1, 2, 3, 4, 8}) dptk::launch_threads(ranks, fn);
#endif
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
