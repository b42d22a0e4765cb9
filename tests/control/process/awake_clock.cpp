// The clock that stands still while the process is stopped. The tests pass artificial times.
#include <doctest/doctest.h>
#include <dptk/control/process/awake_clock.hpp>
#include <dptk/control/process/deadline.hpp>

#include <chrono>

using namespace std::chrono_literals;
using dptk::detail::PauseMeter;

namespace {

struct Process {
    PauseMeter::Clock::time_point now{};
    PauseMeter meter{};

    /// Lets time pass without a look. Returns the awake time since the start.
    PauseMeter::Clock::duration after(std::chrono::milliseconds time) {
        now += time;
        return meter.look(now);
    }

    /// Lets time pass in which a thread that waits looks as often as it must.
    PauseMeter::Clock::duration wait(std::chrono::milliseconds time) {
        for (auto passed = 0ms; passed < time; passed += PauseMeter::look_interval)
            after(PauseMeter::look_interval);
        return meter.look(now);
    }
};

}  // namespace

TEST_CASE("an awake clock takes off the time in which the process was stopped while a thread waited") {
    Process process;
    process.meter.begin_waiting(process.now);
    CHECK(process.wait(3s) == 3s);
    CHECK(process.after(1h) == 3100ms);
    CHECK(process.wait(1s) == 4100ms);
    CHECK(process.after(10s) == 4200ms);
    // The first look after a pause may be that of any thread, and a thread's last one.
    process.meter.begin_waiting(process.now += 10s);
    CHECK(process.after(0ms) == 4300ms);
    process.meter.end_waiting(process.now += 10s);
    process.meter.end_waiting(process.now);
    CHECK(process.after(0ms) == 4400ms);
}

TEST_CASE("an awake clock counts short delays, and times in which no thread waits") {
    Process process;
    process.meter.begin_waiting(process.now);
    CHECK(process.after(PauseMeter::shortest_pause) == 500ms);
    process.meter.end_waiting(process.now);
    CHECK(process.after(60s) == 60500ms);
    process.meter.begin_waiting(process.now += 60s);
    CHECK(process.after(0ms) == 120500ms);
}

TEST_CASE("a deadline that has passed is noticed without a wait, and one that has not is waited for") {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable changed;
    CHECK_FALSE(dptk::detail::Deadline(0ms).wait(changed, lock, [] { return false; }));
    CHECK(dptk::detail::Deadline(0ms).wait(changed, lock, [] { return true; }));
    const dptk::detail::Deadline deadline(20ms);
    CHECK_FALSE(deadline.wait(changed, lock, [] { return false; }));
    CHECK(deadline.passed());
    CHECK(deadline.left() == 0ms);
}
