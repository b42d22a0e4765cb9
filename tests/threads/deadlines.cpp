// Timeouts of calls: a warning first, then an error. Both report for which ranks a rank waits.
#include <doctest/doctest.h>
#include <dptk/comm/thread.hpp>
#include <dptk/core/log.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/debug_mode.hpp"
#include "support/ranks.hpp"

using namespace std::chrono_literals;

namespace {

/// Captures dptk's log lines during its lifetime.
class Logged {
  public:
    Logged() {
        dptk::set_log_sink([this](dptk::LogLevel, int rank, std::string_view message) {
            const std::lock_guard lock(mutex_);
            lines_.push_back(dptk::detail::text("rank ", rank, ": ", message));
        });
    }
    ~Logged() { dptk::set_log_sink({}); }
    Logged(const Logged&) = delete;
    Logged& operator=(const Logged&) = delete;

    /// Returns whether one line contains all parts.
    [[nodiscard]] bool has(const std::vector<std::string>& parts) {
        const std::lock_guard lock(mutex_);
        for (const std::string& line : lines_) {
            if (std::ranges::all_of(parts, [&](const auto& part) { return test::contains(line, part); }))
                return true;
        }
        return false;
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

}  // namespace

TEST_CASE("a call that nobody answers ends at the deadline, and names call, number and missing ranks") {
    Logged logged;
    std::atomic<int> timeouts = 0;
    std::atomic<bool> waited = false;
    const auto run = [&] {
        dptk::launch_threads(
            3,
            [&](dptk::ProcessGroup& group) {
                group.barrier();
                if (group.rank() == 1) {
                    while (!waited) std::this_thread::sleep_for(1ms);
                    return;
                }
                std::vector<float> data(4);
                std::string text;
                const bool thrown = test::throws<dptk::TimeoutError>(text, [&] { group.all_reduce(data); });
                CHECK_MESSAGE(thrown, text);
                CHECK_MESSAGE(test::contains(text, "all_reduce(sum, 4 x f32) #2"), text);
                CHECK_MESSAGE(test::contains(text, "within 2 s"), text);
                CHECK_MESSAGE(test::contains(text, "missing: rank 1 has been in no call for"), text);
                timeouts += thrown;
                waited = timeouts == 2;
                CHECK_THROWS_AS(group.barrier(), dptk::TimeoutError);  // the group stays broken
            },
            {.timeout = 2s});
    };
    run();
    CHECK(timeouts == 2);
    CHECK(logged.has({"rank 0: all_reduce(sum, 4 x f32) #2 has waited for", "(timeout 2 s)",
                      "missing: rank 1 has been in no call"}));
    CHECK(logged.has({"rank 2: all_reduce"}));
}

TEST_CASE("a call in the background has the same deadline, and says which call the missing rank is in") {
    const test::DebugMode unchecked("off");  // the call checker would report another error
    std::atomic<bool> done = false;
    dptk::launch_threads(
        2,
        [&](dptk::ProcessGroup& group) {
            dptk::ProcessGroup other = group.duplicate();
            std::vector<double> data(3);
            std::string text;
            if (group.rank() == 1) {
                static_cast<void>(test::throws<dptk::TimeoutError>(text, [&] { other.barrier(); }));
                return;
            }
            dptk::Work work = group.all_reduce_async(data);
            CHECK(test::throws<dptk::TimeoutError>(text, [&] { work.wait(); }));
            // Either rank's deadline may pass first.
            const bool own = test::contains(text, "all_reduce(sum, 3 x f64) #2") &&
                             test::contains(text, "missing: rank 1 has been in barrier #1");
            const bool others =
                test::contains(text, "barrier #1") &&
                test::contains(text, "missing: rank 0 has been in all_reduce(sum, 3 x f64) #2");
            CHECK_MESSAGE((own || others), text);
            done = true;
        },
        {.timeout = 2s});
    CHECK(done);
}

TEST_CASE("ranks that are threads have the deadline of DPTK_TIMEOUT, unless the options have another one") {
    const test::DebugMode unchecked("off");
    ::setenv("DPTK_TIMEOUT", "0.5", 1);
    for (const bool has_option : {false, true}) {
        dptk::ThreadOptions options;
        if (has_option) options.timeout = 250ms;
        std::atomic<bool> waited = false;
        dptk::launch_threads(
            2,
            [&](dptk::ProcessGroup& group) {
                if (group.rank() == 1) {
                    while (!waited) std::this_thread::sleep_for(1ms);
                    return;
                }
                std::string text;
                CHECK(test::throws<dptk::TimeoutError>(text, [&] { group.barrier(); }));
                CHECK_MESSAGE(test::contains(text, has_option ? "within 250 ms" : "within 500 ms"), text);
                waited = true;
            },
            options);
    }
    ::unsetenv("DPTK_TIMEOUT");
}

TEST_CASE("a message for which nobody waits has no deadline") {
    const auto run = [] {
        dptk::launch_threads(2,
                             [](dptk::ProcessGroup& group) {
                                 std::vector<int> early(3, group.rank());
                                 std::vector<int> data(3, group.rank());
                                 dptk::Work receiving;
                                 if (group.rank() == 1) receiving = group.recv_async(early, 0, 7);
                                 for (int i = 0; i < 3; ++i) {
                                     std::this_thread::sleep_for(300ms);
                                     dptk::Work message = group.rank() == 0 ? group.send_async(data, 1)
                                                                            : group.recv_async(data, 0);
                                     message.wait();
                                 }
                                 if (group.rank() == 0) group.send(early, 1, 7);
                                 receiving.wait();
                                 CHECK(early[2] == 0);
                             },
                             {.timeout = 500ms});
    };
    CHECK_NOTHROW(run());
}

TEST_CASE("monitored_barrier names all missing ranks on all ranks, and the group stays usable") {
    std::atomic<int> came = 0;
    dptk::launch_threads(5, [&](dptk::ProcessGroup& group) {
        group.monitored_barrier();
        const bool late = group.rank() == 1 || group.rank() == 3;
        while (late && came != 3) std::this_thread::sleep_for(1ms);
        std::string text;
        const bool thrown = test::throws<dptk::TimeoutError>(
            text, [&] { group.monitored_barrier(2s); }, test::Agreed::yes);
        CHECK_MESSAGE(thrown, text);
        CHECK_MESSAGE(test::contains(text, "missing after 2 s: rank 1, rank 3"), text);
        if (!late) ++came;
        CHECK(group.all_reduce_value(1) == 5);
        group.monitored_barrier();
    });
    CHECK(came == 3);
}

TEST_CASE("monitored_barrier ends when another rank fails") {
    std::string text;
    const auto run = [&] {
        dptk::launch_threads(2, [&](dptk::ProcessGroup& group) {
            if (group.rank() == 1) throw std::runtime_error("boom");
            CHECK(test::throws<dptk::PeerLostError>(text, [&] { group.monitored_barrier(); }));
        });
    };
    CHECK_THROWS_WITH(run(), "boom");
    CHECK(test::contains(text, "boom"));
}

TEST_CASE("an error is logged if a rank that hangs in its own code keeps launch_threads from throwing it") {
    Logged logged;
    const auto run = [&] {
        dptk::launch_threads(2,
                             [&](dptk::ProcessGroup& group) {
                                 if (group.rank() == 0) group.barrier();
                                 while (!logged.has({"launch_threads waits for rank 1"}))
                                     std::this_thread::sleep_for(1ms);
                             },
                             {.timeout = 100ms});
    };
    CHECK_THROWS_AS(run(), dptk::TimeoutError);
    CHECK(logged.has({"rank 0: barrier #1 has not completed within 100 ms; missing: rank 1",
                      "launch_threads waits for rank 1, since a thread cannot be ended"}));
}
