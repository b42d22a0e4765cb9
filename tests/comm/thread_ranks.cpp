// Ranks that are threads of each process of a group. tests/launch/check-thread-ranks has tests that break
// the processes' group.
#include <doctest/doctest.h>
#include <dptk/comm/registry.hpp>
#include <dptk/comm/thread.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/ranks.hpp"

using namespace std::chrono_literals;

namespace {

using dptk::ProcessGroup;

/// Runs a test whose threads can be connected: in one process, or in a program that includes TCP.
void on_connectable_ranks(const std::function<void(ProcessGroup&)>& fn) {
    test::on_ranks([&fn](ProcessGroup& group) {
        if (group.size() <= 4 && (group.size() == 1 || dptk::is_tcp_available())) fn(group);
    });
}

}  // namespace

TEST_CASE("threads of several processes are one group, numbered process by process") {
    on_connectable_ranks([](ProcessGroup& processes) {
        std::string name;
        for (int round = 0; round < 2; ++round) {  // the processes' group stays usable
            const std::vector<int> counts = processes.all_gather_value(1 + (processes.rank() + round) % 2);
            int first = 0;
            int all = 0;
            for (int process = 0; process < processes.size(); ++process) {
                const int count = counts[static_cast<std::size_t>(process)];
                if (process < processes.rank()) first += count;
                all += count;
            }
            const int own = counts[static_cast<std::size_t>(processes.rank())];
            std::vector<std::atomic<int>> calls(static_cast<std::size_t>(own));
            std::vector<std::string> names(static_cast<std::size_t>(own));
            dptk::launch_threads(processes, own, [&](ProcessGroup& group) {
                REQUIRE(group.size() == all);
                REQUIRE(group.rank() >= first);
                REQUIRE(group.rank() < first + own);
                ++calls[static_cast<std::size_t>(group.rank() - first)];
                names[static_cast<std::size_t>(group.rank() - first)] = group.name();
                CHECK(group.all_reduce_value(group.rank()) == all * (all - 1) / 2);
                std::vector<int> ranks;
                for (int rank = 0; rank < all; ++rank) ranks.push_back(rank);
                CHECK(group.all_gather_value(group.rank()) == ranks);
                CHECK(group.ranks() == ranks);
                CHECK(group.engine().identity().timeout == processes.engine().identity().timeout);
                ProcessGroup even = group.split(group.rank() % 2);
                CHECK(even.size() == (all + 1 - group.rank() % 2) / 2);
                even.monitored_barrier();
            });
            for (const std::atomic<int>& count : calls) CHECK(count == 1);
            if (processes.size() > 1) CHECK(names.front() != name);
            name = names.front();
        }
        CHECK(processes.all_reduce_value(1) == processes.size());
    });
}

TEST_CASE("an exception in a thread ends the threads of all processes") {
    if (test::is_launched()) return;  // it would break the group of the other tests
    on_connectable_ranks([](ProcessGroup& processes) {
        std::atomic<int> told = 0;
        const auto run = [&] {
            dptk::launch_threads(processes, 2, [&](ProcessGroup& group) {
                group.barrier();  // all are connected
                if (group.rank() == group.size() - 1) throw std::runtime_error("boom");
                std::string lost;
                if (test::throws<dptk::PeerLostError>(lost, [&] { group.barrier(); }))
                    told += test::contains(lost, "boom");
                throw dptk::PeerLostError(lost);
            });
        };
        if (processes.rank() == processes.size() - 1) {
            CHECK_THROWS_WITH_AS(run(), "boom", std::runtime_error);
            CHECK(told == 1);
        } else {
            std::string text;
            CHECK(test::throws<dptk::PeerLostError>(text, run));
            CHECK(test::contains(text, "boom"));
            CHECK(told == 2);
        }
    });
}

TEST_CASE("an error that all threads throw is agreed, and the processes' group stays usable") {
    on_connectable_ranks([](ProcessGroup& processes) {
        std::string text;
        CHECK(test::throws<dptk::Error>(
            text,
            [&] {
                dptk::launch_threads(processes, 2, [](ProcessGroup& group) {
                    dptk::on_all_or_none(group, [&] {
                        if (group.rank() == 1) throw std::runtime_error("no such file");
                    });
                });
            },
            test::Agreed::yes));
        CHECK(test::contains(text, "rank 1: no such file"));
        CHECK(processes.all_reduce_value(1) == processes.size());
    });
}

TEST_CASE("an invalid number of threads, and different timeouts, are errors in all processes") {
    on_connectable_ranks([](ProcessGroup& processes) {
        const int last = processes.size() - 1;
        std::atomic<int> calls = 0;
        const auto count = [&](ProcessGroup&) { ++calls; };
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { dptk::launch_threads(processes, processes.rank() == last ? 0 : 2, count); },
            test::Agreed::yes));
        CHECK(test::contains(text, "launch_threads with 0 ranks: expected at least 1"));
        if (last > 0) {
            CHECK(test::contains(text, "rank " + std::to_string(last) + ":"));
            const std::chrono::milliseconds timeout = processes.rank() == last ? 20s : 30s;
            CHECK(test::throws<dptk::MismatchError>(
                text, [&] { dptk::launch_threads(processes, 1, count, {.timeout = timeout}); },
                test::Agreed::yes));
            CHECK(test::contains(text, "timeout 20"));
        }
        CHECK(calls == 0);
        const auto check = [&](ProcessGroup& group) {
            CHECK(group.size() == processes.size());
            CHECK(group.engine().identity().timeout == 25s);
        };
        dptk::launch_threads(processes, 1, check, {.timeout = 25s});
    });
}
