#include <doctest/doctest.h>
#include <dptk/control/health/job_state.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace {

struct Sleeper : dptk::detail::FailureListener {
    int woken = 0;
    void wake() noexcept override { ++woken; }
};

}  // namespace

TEST_CASE("later calls throw the first cause") {
    dptk::detail::JobState job_state;
    CHECK_NOTHROW(job_state.check());
    job_state.fail("rank 1: boom");
    job_state.fail("rank 2: because of rank 1");
    CHECK(job_state.failed());
    CHECK(job_state.cause() == "rank 1: boom");
    CHECK_THROWS_WITH_AS(job_state.check(), "the job is broken: rank 1: boom", dptk::PeerLostError);
}

TEST_CASE("a lost job names the rank that is to blame, not the one that has reported it") {
    const auto peer = [](const dptk::detail::FailureCause& cause) {
        dptk::detail::JobState job_state;
        job_state.fail(cause, dptk::detail::Failure::remote);
        try {
            job_state.check();
        } catch (const dptk::PeerLostError& error) {
            return error.peer().value_or(-1);
        }
        return -2;
    };
    CHECK(peer({"rank 0: barrier #4 has not completed; missing: rank 2", {2}}) == 2);
    CHECK(peer({"rank 3: boom"}) == 3);
    CHECK(peer({"the store is gone"}) == -1);
    const dptk::detail::FailureCause cause{"two\nlines", {4, 5}};
    CHECK(dptk::detail::parse_cause(to_text(cause)).text == cause.text);
    CHECK(dptk::detail::parse_cause(to_text(cause)).ranks == cause.ranks);
    CHECK(dptk::detail::parse_cause("rank 1: it broke").text == "rank 1: it broke");
}

TEST_CASE("a failure wakes each subscriber once, and later subscribers at once") {
    dptk::detail::JobState job_state;
    const auto early = std::make_shared<Sleeper>();
    job_state.subscribe(early);
    job_state.subscribe(std::make_shared<Sleeper>());  // destroyed before the failure
    job_state.fail("x");
    job_state.fail("y");
    CHECK(early->woken == 1);
    const auto late = std::make_shared<Sleeper>();
    job_state.subscribe(late);
    CHECK(late->woken == 1);
}

TEST_CASE("the job's first cause is thrown instead of the loss of a rank, once it is known") {
    dptk::detail::JobState job_state;
    const auto lose_a_rank = [&] {
        dptk::detail::with_first_cause(job_state, [] { throw dptk::PeerLostError("the store is gone"); });
    };
    CHECK_THROWS_WITH_AS(lose_a_rank(), "the store is gone", dptk::PeerLostError);
    std::thread late([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        job_state.fail("rank 1: it broke", dptk::detail::Failure::remote);
    });
    CHECK_THROWS_WITH_AS(lose_a_rank(), "the job is broken: rank 1: it broke", dptk::PeerLostError);
    late.join();
    CHECK_THROWS_WITH_AS(dptk::detail::with_first_cause(job_state, [] { throw dptk::ArgumentError("mine"); }),
                         "mine", dptk::ArgumentError);
}
