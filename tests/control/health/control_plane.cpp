// Control plane: deadlines and the detection of late calls, independently of the store.
#include <doctest/doctest.h>
#include <dptk/comm/engine/active_call.hpp>
#include <dptk/control/health/control_plane.hpp>
#include <dptk/control/health/failure_report.hpp>
#include <dptk/control/store/in_process_store.hpp>
#include <dptk/core/log.hpp>

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

using namespace std::chrono_literals;

namespace {

/// A store whose calls block until let_go(), as the calls of a store on an unreachable host do.
class SilentStore final : public dptk::Store {
  public:
    void set(std::string_view, std::string_view) override { wait_for_end(); }
    std::string get(std::string_view, std::chrono::milliseconds) override { wait_for_end(); }
    std::optional<std::string> find(std::string_view) override { wait_for_end(); }
    std::int64_t add(std::string_view, std::int64_t) override { wait_for_end(); }
    std::string compare_and_set(std::string_view, std::string_view, std::string_view) override {
        wait_for_end();
    }
    void wait(std::span<const std::string>, std::chrono::milliseconds) override { wait_for_end(); }
    bool erase(std::string_view) override { wait_for_end(); }
    void set_last_will(std::string_view, std::string_view) override { wait_for_end(); }
    std::shared_ptr<Store> clone() override { wait_for_end(); }

    void let_go() {
        const std::lock_guard lock(mutex_);
        gone_ = true;
        changed_.notify_all();
    }

  private:
    [[noreturn]] void wait_for_end() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return gone_; });
        throw dptk::PeerLostError("the store is gone");
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    bool gone_ = false;
};

}  // namespace

TEST_CASE("a deadline is enforced, and the last resort is called, even if the store does not respond") {
    dptk::set_log_sink([](dptk::LogLevel, int, std::string_view) {});
    const auto store = std::make_shared<SilentStore>();
    const auto job_state = std::make_shared<dptk::detail::JobState>();
    std::mutex mutex;
    std::condition_variable changed;
    std::string cause;
    const auto plane = dptk::detail::ControlPlane::make({.rank = 0,
                                                         .size = 2,
                                                         .store = store,
                                                         .timeout = 500ms,
                                                         .has_heartbeat = true,
                                                         .last_resort =
                                                             [&](const std::string& text) {
                                                                 const std::lock_guard lock(mutex);
                                                                 cause = text;
                                                                 changed.notify_all();
                                                             }},
                                                        job_state);
    const dptk::detail::CallTracker::CallReader reader{
        [](dptk::detail::CallTracker::Call) { return std::string("barrier"); },
        [](dptk::detail::CallTracker::Call) { return -1; }};
    const auto tracker = std::make_shared<dptk::detail::CallTracker>(
        dptk::detail::ChannelIdentity{.name = "0", .ranks = {0, 1}, .timeout = 500ms},
        dptk::detail::CallTracker::Calls::collectives, reader);
    plane->open(tracker);
    tracker->begin({});
    {
        std::unique_lock lock(mutex);
        REQUIRE(changed.wait_for(lock, 10s, [&] { return !cause.empty(); }));
    }
    CHECK(
        cause ==
        "rank 0: barrier #1 has not completed within 500 ms; the store of the control plane does not answer");
    tracker->end();
    plane->close(tracker);
    store->let_go();
    dptk::set_log_sink({});
}

TEST_CASE("many short messages in succession are not mistaken for one long message") {
    const auto job_state = std::make_shared<dptk::detail::JobState>();
    const auto plane = dptk::detail::ControlPlane::make(
        {.rank = 0, .size = 2, .store = std::make_shared<dptk::InProcessStore>(), .timeout = 500ms},
        job_state);
    const dptk::detail::CallTracker::CallReader reader{
        [](dptk::detail::CallTracker::Call) { return std::string("recv"); },
        [](dptk::detail::CallTracker::Call) { return 1; }};
    const auto tracker = std::make_shared<dptk::detail::CallTracker>(
        dptk::detail::ChannelIdentity{.name = "0/messages", .ranks = {0, 1}, .timeout = 500ms},
        dptk::detail::CallTracker::Calls::messages, reader);
    plane->open(tracker);
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < 1500ms) {
        const dptk::detail::ActiveCall active(*tracker, dptk::Message{.verb = dptk::Verb::recv, .peer = 1});
        std::this_thread::sleep_for(20ms);
    }
    CHECK_FALSE(job_state->failed());
    plane->close(tracker);
}

namespace {

/// Two ranks of one job that read each other's status in a store.
struct TwoRanks {
    using Tracker = std::shared_ptr<dptk::detail::CallTracker>;

    std::shared_ptr<dptk::InProcessStore> store = std::make_shared<dptk::InProcessStore>();
    std::shared_ptr<dptk::detail::ControlPlane> waiting = plane(0);
    std::shared_ptr<dptk::detail::ControlPlane> missing = plane(1);
    Tracker call = tracker("0");

    TwoRanks() { waiting->open(call); }
    TwoRanks(const TwoRanks&) = delete;
    TwoRanks& operator=(const TwoRanks&) = delete;
    ~TwoRanks() { waiting->close(call); }

    [[nodiscard]] std::shared_ptr<dptk::detail::ControlPlane> plane(int rank) const {
        return dptk::detail::ControlPlane::make(
            {.rank = rank, .size = 2, .store = store, .has_heartbeat = true},
            std::make_shared<dptk::detail::JobState>());
    }

    [[nodiscard]] static Tracker tracker(const std::string& name) {
        const dptk::detail::CallTracker::CallReader reader{
            [](dptk::detail::CallTracker::Call) { return std::string("barrier"); },
            [](dptk::detail::CallTracker::Call) { return -1; }};
        return std::make_shared<dptk::detail::CallTracker>(
            dptk::detail::ChannelIdentity{.name = name, .ranks = {0, 1}, .timeout = 60s},
            dptk::detail::CallTracker::Calls::collectives, reader);
    }

    /// Whether what rank 0, which waits in its second call, reports about rank 1 begins with `expected`.
    [[nodiscard]] bool says(std::string_view expected) {
        store->set(dptk::detail::ControlPlane::status_key(1), to_text(missing->status(1)));
        const dptk::detail::FailureCause missing_ranks =
            waiting->find_missing(*call, {.sequence = 2, .active = true});
        CHECK(missing_ranks.ranks == std::vector{1});
        const std::string& text = missing_ranks.text;
        INFO(text);
        CHECK(text.starts_with(expected));
        return text.starts_with(expected);
    }
};

}  // namespace

TEST_CASE("a rank that has closed some of its groups has not left, and its last call is found") {
    TwoRanks ranks;
    const TwoRanks::Tracker group = TwoRanks::tracker("0");
    const TwoRanks::Tracker subgroup = TwoRanks::tracker("0.0-0");
    ranks.missing->open(group);
    ranks.missing->open(subgroup);
    group->begin({});
    group->end();
    ranks.missing->close(subgroup);
    CHECK(ranks.says("missing: rank 1 has been in no call for "));

    const TwoRanks::Tracker other = TwoRanks::tracker("0.1-0");
    ranks.missing->open(other);
    other->begin({});
    CHECK(ranks.says("missing: rank 1 has been in barrier #1 of group 0.1-0 (not of group 0) for "));
    other->end();

    ranks.missing->close(group);
    CHECK(ranks.says("missing: rank 1 has closed group 0 after 1 calls, and has been in no call for "));
    ranks.missing->close(other);
    CHECK(ranks.says("missing: rank 1 has left its process group"));
}

TEST_CASE("a rank that has opened no group yet, or has made no call, has not left") {
    TwoRanks ranks;
    CHECK(ranks.waiting->find_missing(*ranks.call, {.sequence = 1, .active = true}).text ==
          "missing: rank 1 has not reported its status");
    CHECK(ranks.says("missing: rank 1 has made no call yet"));
    const TwoRanks::Tracker group = TwoRanks::tracker("0");
    ranks.missing->open(group);
    CHECK(ranks.says("missing: rank 1 has made no call yet"));
    ranks.missing->close(group);
}

TEST_CASE("an uncaught exception ends the process only after the failure report is written") {
    struct SlowListener final : dptk::detail::FailureListener {
        std::atomic<bool> may_go = false;
        void wake() noexcept override {
            while (!may_go) std::this_thread::sleep_for(1ms);
        }
    };
    dptk::set_log_sink([](dptk::LogLevel, int, std::string_view) {});
    std::string file = (std::filesystem::temp_directory_path() / "dptk-report-XXXXXX").string();
    ::close(::mkstemp(file.data()));
    ::setenv("DPTK_ERROR_FILE", file.c_str(), 1);
    const auto job_state = std::make_shared<dptk::detail::JobState>();
    const auto slow = std::make_shared<SlowListener>();
    job_state->subscribe(slow);
    const auto plane = dptk::detail::ControlPlane::make({.rank = 0, .size = 2, .timeout = 60s}, job_state);
    std::jthread finder([&] { job_state->fail("rank 1 is gone", dptk::detail::Failure::remote); });
    while (!job_state->failed()) std::this_thread::sleep_for(1ms);
    plane->on_terminate("uncaught exception: rank 1 is gone");
    const auto report = dptk::detail::read_failure_report(file.c_str());
    slow->may_go = true;
    finder.join();
    ::unsetenv("DPTK_ERROR_FILE");
    std::filesystem::remove(file);
    dptk::set_log_sink({});
    REQUIRE(report.has_value());
    CHECK(report->text == "rank 1 is gone");
    CHECK(report->kind == dptk::detail::FailureKind::consequence);
}
