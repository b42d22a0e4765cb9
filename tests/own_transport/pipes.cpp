// Tests a custom transport, the one of examples/pipe_transport.hpp, between forked processes. It is a
// separate program because it forks: none of its tests may start a thread in the parent process.
#include <doctest/doctest.h>
#include <dptk/control/health/program_end.hpp>

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fork_ranks.hpp"
#include "pipe_transport.hpp"
#include "support/temporary_folder.hpp"
#include "support/verb_suite.hpp"

namespace {

/// The number of CHECKs that have failed in this process.
std::atomic<int> failures = 0;

class FailureCounter : public doctest::IReporter {
  public:
    explicit FailureCounter(const doctest::ContextOptions&) {}

    void log_assert(const doctest::AssertData& assertion) override { failures += assertion.m_failed ? 1 : 0; }

    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void test_case_start(const doctest::TestCaseData&) override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("failures", 1, FailureCounter);

/// Runs fn(PipeTransport) in `size` processes. A rank fails if fn throws, if one of its CHECKs fails, or if
/// it hangs.
template <class Fn>
std::vector<dptk::detail::ChildEnd> run_ranks(int size, Fn fn) {
    return fork_ranks(size, [fn](PipeTransport transport) {
        failures = 0;
        fn(std::move(transport));
        if (failures > 0) throw std::runtime_error(std::to_string(failures) + " checks have failed");
    });
}

/// Runs fn(ProcessGroup&) in `size` processes, over pipes.
template <class Fn>
std::vector<dptk::detail::ChildEnd> run_groups(int size, Fn fn) {
    return run_ranks(size, [fn](PipeTransport transport) {
        dptk::ProcessGroup group = PipeCommunicator(std::move(transport));
        fn(group);
    });
}

/// Runs fn(ProcessGroup&) in `size` processes that report failures to each other.
template <class Fn>
std::vector<dptk::detail::ChildEnd> run_job(int size, Fn fn) {
    const TemporaryFolder folder;
    return run_ranks(size, [fn, method = "file://" + (folder / "rendezvous").string()](PipeTransport pipes) {
        {
            dptk::ProcessGroup group = PipeCommunicator(std::move(pipes), {.init_method = method});
            fn(group);
        }
        dptk::detail::ProgramEnd::get().wait();  // as exit() does, which a forked rank does not call
    });
}

/// Returns on rank `last` when the other ranks have left all calls, so that its failure does not end one of
/// them: a barrier may return on one rank before it returns on another.
void meet(dptk::ProcessGroup& group, int last) {
    group.barrier();
    int token = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
        if (rank == last) continue;
        if (group.rank() == last) group.recv(std::span(&token, 1), rank);
        if (group.rank() == rank) group.send(std::span(&token, 1), last);
    }
}

/// Waits for a message that never comes, and checks that this ends with a PeerLostError that contains `text`.
void check_wait_ends(dptk::ProcessGroup& group, int from, const char* text) {
    int number = 0;
    CHECK_THROWS_WITH_AS(group.recv(std::span(&number, 1), from), doctest::Contains(text),
                         dptk::PeerLostError);
}

bool all_well(const std::vector<dptk::detail::ChildEnd>& ends) {
    return std::ranges::all_of(ends, &dptk::detail::ChildEnd::well);
}

/// A transport whose recv() never returns, and does not know of dptk's waits.
class DeafTransport final : public dptk::Transport {
  public:
    DeafTransport(int rank, int size) : rank_(rank), size_(size) {}
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    [[nodiscard]] std::string_view backend() const override { return "deaf"; }
    void send(const dptk::Buffer&, int, int) override {}
    void recv(const dptk::Buffer&, int, int) override {
        while (true) ::pause();
    }

  private:
    int rank_;
    int size_;
};

/// Sends this process a signal every millisecond, which interrupts its reads and writes with EINTR.
void interrupt_every_millisecond() {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // no SA_RESTART
    ::sigaction(SIGALRM, &action, nullptr);
    const itimerval often{.it_interval = {0, 1000}, .it_value = {0, 1000}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
}

}  // namespace

TEST_CASE("send and recv over pipes make every verb, at 1 to 4 ranks") {
    for (const int size : {1, 2, 3, 4}) {
        CAPTURE(size);
        CHECK(all_well(run_groups(size, test::check_verbs)));
    }
}

TEST_CASE("what the transport does not have is refused by name") {
    const auto ends = run_groups(2, [](dptk::ProcessGroup& group) {
        std::vector<int> one(1);
        CHECK_THROWS_WITH_AS(
            group.recv(one, dptk::any_rank),
            doctest::Contains("recv(1 x i32, from any rank): the transport pipes has no recv_any"),
            dptk::ArgumentError);
        CHECK_THROWS_WITH_AS(static_cast<void>(group.duplicate()),
                             doctest::Contains("the transport pipes has no duplicate()"),
                             dptk::ArgumentError);
        CHECK_THROWS_WITH_AS(static_cast<void>(group.subgroup({0})),
                             doctest::Contains("the transport pipes has no subgroup()"), dptk::ArgumentError);
        CHECK(group.all_reduce_value(1) == 2);
    });
    CHECK(all_well(ends));
}

TEST_CASE("a message of another size or tag than expected is a mismatch") {
    const auto ends = run_ranks(3, [](PipeTransport transport) {
        int numbers[3] = {};
        const dptk::Buffer three{numbers, 3, dptk::DType::i32, {}, 0};
        const dptk::Buffer two = three.slice(0, 2);
        if (transport.rank() == 0) {
            for (const int other : {1, 2}) {
                try {
                    transport.send(two, other, 7);
                } catch (const dptk::PeerLostError&) {
                    // The receiver detects the mismatch in the envelope and may end before it reads the rest.
                }
            }
        } else if (transport.rank() == 1) {
            CHECK_THROWS_WITH_AS(transport.recv(three, 0, 7),
                                 "rank 1: expected 12 bytes with tag 7 from rank 0, got 8 bytes with tag 7",
                                 dptk::MismatchError);
        } else {
            CHECK_THROWS_WITH_AS(transport.recv(two, 0, 8),
                                 "rank 2: expected 8 bytes with tag 8 from rank 0, got 8 bytes with tag 7",
                                 dptk::MismatchError);
        }
    });
    CHECK(all_well(ends));
}

TEST_CASE("a message arrives although its sender has gone, and the next one does not") {
    const auto ends = run_ranks(3, [](PipeTransport transport) {
        std::vector<char> large(1 << 20, static_cast<char>(transport.rank()));
        const dptk::Buffer all{large.data(), large.size(), dptk::DType::u8, {}, 0};
        const dptk::Buffer few = all.slice(0, 100);
        if (transport.rank() == 1) return transport.send(few, 0, 0);
        if (transport.rank() == 2) return;
        transport.recv(few, 1, 0);
        CHECK(large[99] == 1);
        CHECK_THROWS_WITH_AS(transport.recv(few, 1, 0), "rank 0: rank 1 has closed its pipe",
                             dptk::PeerLostError);
        CHECK_THROWS_WITH_AS(transport.recv(few, 2, 0), "rank 0: rank 2 has closed its pipe",
                             dptk::PeerLostError);
        CHECK_THROWS_WITH_AS(transport.send(all, 2, 0), "rank 0: rank 2 has closed its pipe",
                             dptk::PeerLostError);
    });
    CHECK(all_well(ends));
}

TEST_CASE("signals do not disturb messages") {
    const auto ends = run_groups(2, [](dptk::ProcessGroup& group) {
        interrupt_every_millisecond();
        for (int i = 0; i < 50; ++i) {
            std::vector<double> data(300'000, i);
            if (group.rank() == i % 2) ::usleep(3000);
            group.all_reduce(data);
            CHECK(std::ranges::count(data, 2.0 * i) == 300'000);
        }
    });
    CHECK(all_well(ends));
}

TEST_CASE("where a rank throws, all ranks end with an error") {
    const auto ends = run_groups(3, [](dptk::ProcessGroup& group) {
        for (int i = 0;; ++i) {
            if (i == 100 && group.rank() == 1) throw std::runtime_error("rank 1 has had enough");
            static_cast<void>(group.all_reduce_value(i));
        }
    });
    for (const dptk::detail::ChildEnd& end : ends) CHECK(end.exit_status() == 1);
}

TEST_CASE("a rank that throws does not wait for what it has started") {
    const auto ends = run_groups(3, [](dptk::ProcessGroup& group) {
        int number = 0;
        if (group.rank() == 1) {
            const dptk::Work never = group.recv_async(std::span(&number, 1), 2);
            throw std::runtime_error("rank 1 has had enough");
        }
        group.recv(std::span(&number, 1), 1);
    });
    for (const dptk::detail::ChildEnd& end : ends) CHECK(end.exit_status() == 1);
}

TEST_CASE("where a rank is killed, the others end with an error") {
    for (const int killed : {0, 3}) {
        const auto ends = run_groups(4, [killed](dptk::ProcessGroup& group) {
            for (int i = 0;; ++i) {
                if (i == 100 && group.rank() == killed) ::raise(SIGKILL);
                std::vector<float> data(100'000);
                group.all_reduce_async(data).wait();
            }
        });
        for (int rank = 0; rank < 4; ++rank)
            CHECK(ends[static_cast<std::size_t>(rank)].exit_status() == (rank == killed ? 128 + SIGKILL : 1));
    }
}

TEST_CASE("DPTK_TIMEOUT and the time limit of one call end calls with TimeoutError") {
    for (const bool of_one_call : {false, true}) {
        CAPTURE(of_one_call);
        const auto ends = run_ranks(2, [of_one_call](PipeTransport transport) {
            if (!of_one_call) ::setenv("DPTK_TIMEOUT", "0.5", 1);
            dptk::ProcessGroup group = PipeCommunicator(std::move(transport));
            int number = 0;
            if (group.rank() == 1) {
                ::sleep(3);
            } else if (of_one_call) {
                CHECK_THROWS_WITH_AS(
                    group.recv(std::span(&number, 1), 1, 0, {.timeout = std::chrono::milliseconds(500)}),
                    doctest::Contains("recv(1 x i32, from rank 1) has not completed within 500 ms"),
                    dptk::TimeoutError);
            } else {
                CHECK_THROWS_WITH_AS(group.barrier(),
                                     doctest::Contains("barrier #1 has not completed within 500 ms"),
                                     dptk::TimeoutError);
            }
        });
        CHECK(all_well(ends));
    }
}

TEST_CASE("an exception on one rank ends the others' calls, with its text if nobody catches it") {
    for (const bool is_caught : {true, false}) {
        CAPTURE(is_caught);
        const auto ends = run_job(3, [is_caught](dptk::ProcessGroup& group) {
            meet(group, 1);
            if (group.rank() == 1) {
                if (is_caught) throw std::runtime_error("rank 1 has had enough");
                std::signal(SIGABRT, SIG_DFL);
                std::thread([] { throw std::runtime_error("rank 1 has had enough"); }).join();
            }
            check_wait_ends(group, 2 - group.rank(),
                            is_caught ? "rank 1 left its process group because of an exception"
                                      : "rank 1: uncaught exception: rank 1 has had enough");
        });
        CHECK(ends[0].well());
        CHECK(ends[1].exit_status() == (is_caught ? 1 : 128 + SIGABRT));
        CHECK(ends[2].well());
    }
}

TEST_CASE("a rank that is killed is named by the others, which wait for each other") {
    const auto ends = run_job(3, [](dptk::ProcessGroup& group) {
        meet(group, 2);
        if (group.rank() == 2) ::raise(SIGKILL);
        check_wait_ends(group, 1 - group.rank(), "rank 2");
    });
    for (int rank = 0; rank < 3; ++rank)
        CHECK(ends[static_cast<std::size_t>(rank)].exit_status() == (rank == 2 ? 128 + SIGKILL : 0));
}

TEST_CASE("where calls cannot be interrupted, an exception on one rank ends the others' processes") {
    const TemporaryFolder folder;
    const auto ends =
        run_ranks(2, [method = "file://" + (folder / "rendezvous").string()](PipeTransport pipes) {
            dptk::BasicCommunicator<DeafTransport> group(DeafTransport{pipes.rank(), pipes.size()},
                                                         {.init_method = method});
            if (group.rank() == 1) throw std::runtime_error("rank 1 has had enough");
            int number = 0;
            group.recv(std::span(&number, 1), 1);
        });
    for (const dptk::detail::ChildEnd& end : ends) CHECK(end.exit_status() == 1);
}

TEST_CASE("options that contradict the transport are errors") {
    const auto ends = run_ranks(2, [](PipeTransport transport) {
        const std::string own = "the transport pipes is rank " + std::to_string(transport.rank()) + " of 2";
        const auto fails = [&](const dptk::InitOptions& options, const std::string& why) {
            CHECK_THROWS_WITH_AS(
                PipeCommunicator(PipeTransport(transport.rank(), std::vector<PipePair>(2)), options),
                doctest::Contains((own + ", but the options have " + why).c_str()), dptk::ArgumentError);
        };
        fails({.rank = 7, .world_size = 8}, "rank 7");
        fails({.world_size = 3}, "world size 3");
        fails({.backend = "mpi"}, "the backend mpi");
        fails({.init_method = "mpi://"},
              "the init method mpi://: expected env://, tcp://, file:// or slurm://");
    });
    CHECK(all_well(ends));
}
