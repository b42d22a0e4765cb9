#include <doctest/doctest.h>
#include <dptk/control/health/job_state.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace {

struct Sleeper : dptk::Wakeable {
    int woken = 0;
    void wake() noexcept override { ++woken; }
};

}  // namespace

TEST_CASE("the first cause stays, and is what later calls throw") {
    dptk::JobHealth health;
    CHECK_NOTHROW(health.check());
    health.fail("rank 1: boom");
    health.fail("rank 2: because of rank 1");
    CHECK(health.failed());
    CHECK(health.cause() == "rank 1: boom");
    CHECK_THROWS_WITH_AS(health.check(), "the job is broken: rank 1: boom", dptk::PeerLostError);
}

TEST_CASE("a failure wakes those who wait, once, and those who come later at once") {
    dptk::JobHealth health;
    const auto early = std::make_shared<Sleeper>();
    health.subscribe(early);
    health.subscribe(std::make_shared<Sleeper>());  // gone before the failure
    health.fail("x");
    health.fail("y");
    CHECK(early->woken == 1);
    const auto late = std::make_shared<Sleeper>();
    health.subscribe(late);
    CHECK(late->woken == 1);
}

TEST_CASE("the job's first cause is told instead of the loss of a rank, once it is known") {
    dptk::JobHealth health;
    const auto lose_a_rank = [&] {
        dptk::with_first_cause(health, [] { throw dptk::PeerLostError("the store is gone"); });
    };
    CHECK_THROWS_WITH_AS(lose_a_rank(), "the store is gone", dptk::PeerLostError);
    std::thread late([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        health.fail("rank 1: it broke", dptk::Failure::elsewhere);
    });
    CHECK_THROWS_WITH_AS(lose_a_rank(), "the job is broken: rank 1: it broke", dptk::PeerLostError);
    late.join();
    CHECK_THROWS_WITH_AS(dptk::with_first_cause(health, [] { throw dptk::ArgumentError("mine"); }), "mine",
                         dptk::ArgumentError);
}
