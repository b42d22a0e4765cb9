#include "dptk/control/health/program_end.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "dptk/control/health/heartbeat.hpp"
#include "dptk/control/store/prefix_store.hpp"
#include "dptk/control/store/tcp_store.hpp"
#include "dptk/control/store/tcp_store_server.hpp"

using namespace std::chrono_literals;

namespace {

/// A store that rank 0 serves to its job.
struct ServedJob {
    dptk::TcpStoreServer server;
    std::shared_ptr<dptk::Store> store = server.local();

    [[nodiscard]] std::shared_ptr<dptk::Store> join() const {
        return dptk::TcpStore::connect({"127.0.0.1", server.port()});
    }

    void fail() const { store->set(dptk::detail::ControlPlane::abort_key, "rank 0: it broke"); }
};

}  // namespace

TEST_CASE("rank 0 of a failed job ends after the other ranks have read the cause") {
    const ServedJob job;
    dptk::detail::ProgramEnd::get().add_job(job.store, 0, 3, 1min);
    dptk::detail::ProgramEnd::get().await_readers();  // returns at once, since the job has not failed

    job.store->set(dptk::detail::ControlPlane::left_key(2), "");
    job.fail();
    const auto job_state = std::make_shared<dptk::detail::JobState>();
    std::atomic<bool> joined = false;
    std::thread late([&] {
        std::this_thread::sleep_for(200ms);
        joined = true;
        const auto plane = dptk::detail::join_control_plane(
            {.rank = 1, .size = 3, .store = job.join(), .timeout = 1min}, job_state);
        CHECK(job_state->wait_until_failed(1min));
    });
    CHECK(dptk::detail::ProgramEnd::get().wait().failure.empty());
    CHECK(joined);
    CHECK(job.store->find(dptk::detail::ControlPlane::ended_key(1)));
    late.join();
    CHECK(job_state->cause() == "rank 0: it broke");
}

TEST_CASE("rank 0 of a failed job does not wait forever") {
    const ServedJob job;
    dptk::detail::ProgramEnd::get().add_job(job.store, 0, 2, 1min);
    job.fail();
    CHECK(dptk::detail::ProgramEnd::get().wait().failure.empty());
    CHECK_FALSE(job.store->find(dptk::detail::ControlPlane::ended_key(1)));
}

TEST_CASE("a rank that does not close its group in time is named") {
    const ServedJob job;
    dptk::detail::ProgramEnd::get().add_job(job.store, 0, 3, 200ms);
    job.store->set(dptk::detail::ControlPlane::left_key(0), "");
    job.store->set(dptk::detail::ControlPlane::left_key(1), "");
    const dptk::detail::ProgramEnd::Outcome outcome = dptk::detail::ProgramEnd::get().wait();
    CHECK_FALSE(outcome.well);
    CHECK(outcome.failure == "rank 2 has not closed its process group within 200 ms of this rank's exit");

    const std::shared_ptr<void> shutdown = dptk::detail::ProgramEnd::get().begin_shutdown(200ms);
    CHECK_FALSE(dptk::detail::ProgramEnd::get().wait().well);
}

TEST_CASE("a job whose ranks have not made the same calls does not end well") {
    const auto status_after = [](std::uint32_t hash, const char* call) {
        dptk::detail::ChannelStatus channel{"0", 1, false, 0ms, -1, ""};
        channel.is_closed = true;
        channel.marks = {{1, hash}};
        channel.calls = {{1, call}};
        return to_text(dptk::detail::RankStatus{0, {channel}});
    };
    for (const bool differ : {false, true}) {
        const ServedJob job;
        dptk::detail::ProgramEnd::get().add_job(job.store, 0, 2, 1min);
        job.store->set(dptk::detail::ControlPlane::left_key(0), status_after(1, "barrier #1"));
        job.store->set(
            dptk::detail::ControlPlane::left_key(1),
            differ ? status_after(2, "broadcast(root 0, 8 x f32) #1") : status_after(1, "barrier #1"));
        const dptk::detail::ProgramEnd::Outcome outcome = dptk::detail::ProgramEnd::get().wait();
        CHECK(outcome.well == !differ);
        CHECK(outcome.failure ==
              (differ ? "calls differ between ranks: rank 0 calls barrier #1, and rank 1 calls "
                        "broadcast(root 0, 8 x f32) #1"
                      : ""));
    }
}
