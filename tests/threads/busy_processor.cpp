// Ranks that wait on a processor that another thread needs.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/resource.h>
#include <dptk/comm/shm.hpp>
#include <dptk/comm/shm/paced_progress.hpp>
#include <dptk/comm/thread.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/ranks_on_hosts.hpp"

namespace {

/// Lets the calling thread, and those that it starts, run on one processor only.
class OneProcessor {
  public:
    OneProcessor() {
        REQUIRE(sched_getaffinity(0, sizeof before_, &before_) == 0);
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
        REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    }
    ~OneProcessor() { sched_setaffinity(0, sizeof before_, &before_); }
    OneProcessor(const OneProcessor&) = delete;
    OneProcessor& operator=(const OneProcessor&) = delete;

  private:
    cpu_set_t before_{};
};

/// A thread that computes until the object is destroyed.
class BusyThread {
  public:
    BusyThread() = default;
    ~BusyThread() {
        ended_ = true;
        thread_.join();
    }
    BusyThread(const BusyThread&) = delete;
    BusyThread& operator=(const BusyThread&) = delete;

  private:
    std::atomic<bool> ended_ = false;
    std::thread thread_{[this] {
        while (!ended_) {
        }
    }};
};

/// Returns how often the calling thread has slept until now. A yield is no sleep.
[[nodiscard]] long sleeps() {
    rusage usage{};
    REQUIRE(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_nvcsw;
}

/// Checks that a rank often sleeps while it waits. Each yield would cost a time slice of the busy thread.
/// Tries several times, since other programs on the machine may keep the ranks from waiting.
void check_waits(dptk::ProcessGroup& group) {
    constexpr int calls = 400;
    bool sleep_all = false;
    for (int round = 0; round < 20 && !sleep_all; ++round) {
        const long before = sleeps();
        for (int call = 0; call < calls; ++call) static_cast<void>(group.all_reduce_value(1));
        const int sleeps_often = sleeps() - before > calls / 8 ? 1 : 0;
        sleep_all = group.all_reduce_value(sleeps_often, dptk::ReduceOp::min) == 1;
    }
    CHECK(sleep_all);
}

}  // namespace

TEST_CASE("ranks that wait sleep if another thread needs their processor") {
    const OneProcessor here;
    const BusyThread busy;
    SUBCASE("threads") {
        dptk::launch_threads(2, check_waits);
    }
    SUBCASE("shared memory") {
        test::launch_on_hosts({"a", "a"}, check_waits);
    }
}

TEST_CASE("slow progress is rare while no operation is pending") {
    dptk::detail::PacedProgress pace;
    int calls = 0;
    bool is_pending = true;
    const auto progress = [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ++calls;
        return is_pending;
    };
    CHECK(pace(progress));
    is_pending = false;
    CHECK_FALSE(pace(progress));
    CHECK(calls == 2);
    CHECK_FALSE(pace(progress));  // within 900 ms of the last call
    CHECK(calls == 2);
}
