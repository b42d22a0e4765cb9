// What a forked child has of its own, although threads of its parent use the same at the time of the fork.
#include <doctest/doctest.h>
#include <dptk/control/health/watchdog.hpp>
#include <dptk/control/process/awake_clock.hpp>
#include <dptk/control/process/background_thread.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

struct CountedLooks : dptk::detail::WatchdogTask {
    std::atomic<int> count = 0;

    void look() noexcept override { ++count; }
    [[nodiscard]] std::chrono::milliseconds interval() const noexcept override { return 1ms; }

    void await(int wanted) const {
        while (count < wanted) std::this_thread::sleep_for(1ms);
    }
};

/// Runs `fn` in a forked child, for at most 10 s. Returns whether it has returned.
template <class Fn>
bool returns_in_child(Fn&& fn) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        fn();
        _exit(0);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

TEST_CASE("a watchdog runs the tasks of a forked child") {
    const auto parents = std::make_shared<CountedLooks>();
    dptk::detail::Watchdog::get().watch(parents);
    parents->await(1);
    CHECK(returns_in_child([] {
        const auto tasks = std::make_shared<CountedLooks>();
        dptk::detail::Watchdog::get().watch(tasks);
        tasks->await(2);
    }));
    const int before = parents->count;
    parents->await(before + 2);
}

TEST_CASE("a forked child has a clock, whatever the parent's threads do at the time of the fork") {
    std::atomic<bool> ends = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.push_back(dptk::detail::start_background_thread([&] {
            while (!ends) static_cast<void>(dptk::detail::AwakeClock::now());
        }));
    }
    int returned = 0;
    for (int i = 0; i < 50 && returned == i; ++i)
        returned += returns_in_child([] { dptk::detail::AwakeClock::sleep_for(1us); });
    ends = true;
    for (std::thread& thread : threads) thread.join();
    CHECK(returned == 50);
}
