#include <doctest/doctest.h>
#include <dptk/control/health/first_failure.hpp>
#include <dptk/control/process/stop_schedule.hpp>
#include <dptk/control/process/temporary_directory.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using dptk::detail::FailureKind;
using dptk::detail::FailureReport;
using dptk::detail::FirstFailure;
using dptk::detail::RankEnd;
using dptk::detail::StoppedRank;

dptk::detail::ChildEnd exited(int status) {
    return dptk::detail::ChildEnd(status << 8);
}

dptk::detail::ChildEnd killed(int signal) {
    return dptk::detail::ChildEnd(signal);
}

RankEnd end(int rank, dptk::detail::ChildEnd how, std::chrono::milliseconds after,
            std::optional<FailureReport> note = std::nullopt) {
    return {.rank = rank,
            .process = 1,
            .end = how,
            .after = after,
            .note = std::move(note),
            .asked_to_end = false};
}

RankEnd asked(RankEnd rank) {
    rank.asked_to_end = true;
    return rank;
}

int first(const std::vector<RankEnd>& ends) {
    const auto failure = dptk::detail::find_first_failure(ends, {});
    return failure && failure->kind == FirstFailure::Kind::own ? failure->who.rank : -1;
}

const FailureReport cause{FailureKind::cause, "bad data"};
const FailureReport consequence{FailureKind::consequence, "rank 7 is gone"};

}  // namespace

TEST_CASE("if all ranks exit with status 0, no rank has failed") {
    CHECK_FALSE(dptk::detail::find_first_failure({}, {}));
    CHECK_FALSE(
        dptk::detail::find_first_failure(std::vector{end(0, exited(0), 1ms), end(1, exited(0), 2ms)}, {}));
}

TEST_CASE("among failures of the same kind, the earliest is the first") {
    CHECK(first({end(0, exited(1), 9ms), end(1, exited(2), 8ms), end(2, exited(0), 1ms)}) == 1);
    CHECK(first({end(0, killed(SIGSEGV), 9ms), end(1, killed(SIGKILL), 8ms)}) == 1);
}

TEST_CASE("a consequence is never the first failure, however early") {
    CHECK(first({end(0, exited(1), 1ms, consequence), end(1, exited(1), 99ms)}) == 1);
    CHECK(first({end(0, killed(SIGABRT), 1ms, consequence), end(1, exited(1), 99ms, cause)}) == 1);
}

TEST_CASE("an end by a signal, or with a cause, takes precedence over an earlier exit") {
    CHECK(first({end(0, exited(1), 1ms), end(1, killed(SIGKILL), 5ms)}) == 1);
    CHECK(first({end(0, exited(1), 1ms), end(1, exited(1), 5ms, cause)}) == 1);
    CHECK(first({end(0, exited(1), 1ms), end(1, killed(SIGPIPE), 5ms)}) == 0);
}

TEST_CASE("a rank that was asked to end has not failed, unless it reports a cause") {
    CHECK(first({end(0, exited(3), 1ms), asked(end(1, killed(SIGTERM), 2ms)),
                 asked(end(2, exited(1), 2ms))}) == 0);
    CHECK(first({end(0, exited(1), 1ms, consequence), asked(end(1, exited(1), 900ms, cause))}) == 1);
    CHECK(first({end(0, exited(3), 1ms), asked(end(1, exited(1), 900ms, cause))}) == 0);
    CHECK(first({end(0, exited(1), 1ms, consequence), asked(end(1, killed(SIGSEGV), 900ms))}) == 1);
}

TEST_CASE("if all failures are consequences, the ranks that the reports blame are named") {
    const FailureReport late{FailureKind::consequence, "rank 0: barrier #4 ...; missing: rank 1", {1}};
    const auto blame = [&](RankEnd missing, const std::vector<StoppedRank>& stopped = {}) {
        const auto failure = dptk::detail::find_first_failure(
            std::vector{end(0, exited(1), 1ms, late), std::move(missing)}, stopped);
        REQUIRE(failure);
        CHECK(failure->kind == FirstFailure::Kind::reported);
        CHECK(failure->who.rank == 0);
        CHECK(failure->ranks == std::vector{1});
        return failure->headline;
    };
    const std::string reported = "; the other ranks reported: " + late.text;
    CHECK(blame(asked(end(1, killed(SIGTERM), 300ms))) == "rank 1 was still running" + reported);
    CHECK(blame(asked(end(1, exited(0), 300ms))) == "rank 1 was still running" + reported);
    CHECK(blame(asked(end(1, killed(SIGTERM), 300ms)), {{1, SIGSTOP}}) ==
          "rank 1 is stopped (SIGSTOP)" + reported);
    CHECK(blame(end(1, exited(0), 300ms)) == "rank 1 ended with exit status 0" + reported);
    CHECK(blame(end(1, exited(1), 300ms, late)) == late.text);  // what it did is in the text
}

TEST_CASE("if all failures are consequences, and no rank of this host is blamed, another host is named") {
    const std::vector<RankEnd> ends{end(0, exited(1), 1ms, consequence),
                                    asked(end(1, killed(SIGTERM), 300ms))};
    const auto elsewhere = dptk::detail::find_first_failure(ends, {});
    REQUIRE(elsewhere);
    CHECK(elsewhere->kind == FirstFailure::Kind::reported);
    CHECK(elsewhere->headline == "the first failure is on another host: rank 7 is gone");
    CHECK(elsewhere->ranks == std::vector{0});
    const auto stopped = dptk::detail::find_first_failure(ends, std::vector<StoppedRank>{{1, SIGSTOP}});
    REQUIRE(stopped);
    CHECK(stopped->headline == "rank 1 is stopped (SIGSTOP); the other ranks reported: rank 7 is gone");
    CHECK(stopped->ranks == std::vector{1});
    const FailureReport unclear{FailureKind::consequence, "the store is gone"};
    const auto unknown = dptk::detail::find_first_failure(std::vector{end(0, exited(1), 1ms, unclear)}, {});
    REQUIRE(unknown);
    CHECK(unknown->headline == "the store is gone");
    CHECK(unknown->ranks == std::vector{0});
}

TEST_CASE("an error that all ranks have thrown is nobody's own, and the rank that it names is shown") {
    const FailureReport agreed{FailureKind::agreed, "rank 2 calls barrier where rank 0 calls reduce", {2}};
    const std::vector<RankEnd> ends{end(0, exited(1), 1ms, agreed), end(1, exited(1), 2ms, consequence),
                                    end(2, exited(1), 3ms)};
    const auto failure = dptk::detail::find_first_failure(ends, {});
    REQUIRE(failure);
    CHECK(failure->kind == FirstFailure::Kind::reported);
    CHECK(failure->headline == "all ranks have thrown the same error: " + agreed.text);
    CHECK(failure->ranks == std::vector{2});
    CHECK(first({end(0, exited(1), 1ms, agreed), end(1, exited(1), 9ms, cause)}) == 1);
}

TEST_CASE("the other end of a message is shown together with the rank that has failed") {
    const FailureReport size{FailureKind::cause, "rank 1 sends 20 bytes to rank 0, which expects 16", {1}};
    const auto failure = dptk::detail::find_first_failure(
        std::vector{end(0, exited(1), 1ms, size), end(1, exited(1), 2ms, consequence)}, {});
    REQUIRE(failure);
    CHECK(failure->headline == "rank 0 failed first: exit status 1");
    CHECK(failure->ranks == std::vector{0, 1});
}

TEST_CASE("a failure report is read as it was written, and other files are not reports") {
    const dptk::detail::TemporaryDirectory folder("dptk-test");
    const std::string path = folder.path() + "/note";
    CHECK_FALSE(dptk::detail::read_failure_report(path.c_str()));
    dptk::detail::write_failure_report(path.c_str(), {FailureKind::consequence, "two\nlines"});
    auto note = dptk::detail::read_failure_report(path.c_str());
    REQUIRE(note);
    CHECK(note->kind == FailureKind::consequence);
    CHECK(note->text == "two\nlines");
    CHECK(note->ranks.empty());
    dptk::detail::write_failure_report(path.c_str(), {FailureKind::agreed, "two\nlines", {3, 12}});
    note = dptk::detail::read_failure_report(path.c_str());
    REQUIRE(note);
    CHECK(note->kind == FailureKind::agreed);
    CHECK(note->text == "two\nlines");
    CHECK(note->ranks == std::vector{3, 12});
    dptk::detail::write_failure_report(path.c_str(), {FailureKind::cause, ""});
    note = dptk::detail::read_failure_report(path.c_str());
    REQUIRE(note);
    CHECK(note->kind == FailureKind::cause);
    CHECK(note->text.empty());
    std::FILE* const file = std::fopen(path.c_str(), "w");
    std::fputs("caus", file);
    std::fclose(file);
    CHECK_FALSE(dptk::detail::read_failure_report(path.c_str()));
}

TEST_CASE("after a failure the other ranks are asked to end after the settling time, and then killed") {
    using dptk::detail::StopSchedule;
    using Action = StopSchedule::Action;
    const StopSchedule::Time start{};
    StopSchedule schedule(5s);
    CHECK(schedule.due(start) == Action::none);
    schedule.failure(start);
    schedule.failure(start + 150ms);  // does not move the deadline
    CHECK(schedule.due(start + 1999ms) == Action::none);
    CHECK_FALSE(schedule.asked());
    CHECK(schedule.due(start + 2s) == Action::ask);
    CHECK(schedule.asked());
    CHECK(schedule.due(start + 6999ms) == Action::none);
    CHECK(schedule.due(start + 7s) == Action::kill);
    CHECK(schedule.due(start + 9s) == Action::none);

    StopSchedule at_once(5s);
    at_once.stop(start);
    CHECK(at_once.due(start) == Action::ask);
    at_once.stop(start + 1s);  // has no effect
    CHECK(at_once.due(start + 1s) == Action::none);
    at_once.kill(start + 1s);
    CHECK(at_once.due(start + 1s) == Action::kill);
}
