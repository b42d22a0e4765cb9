// The simulated network: exact times in virtual time, and approximate ones in real time.
#include "simulated/simulated.hpp"
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "support/verb_suite.hpp"

namespace {

using dptk::AllReduceAlgorithm;
using dptk::ProcessGroup;
using dptk::SimulatedClock;
using dptk::SimulatedNetwork;
using dptk::SimulatedSeconds;
using dptk::SimulatedTime;

// Powers of two, so that sums of times are exact.
constexpr double latency = 0.125;
constexpr double bandwidth = 1024;

/// Returns a network with one latency and one bandwidth between all ranks.
SimulatedNetwork uniform(int hosts, int ranks_per_host) {
    const dptk::SimulatedLink link{SimulatedSeconds(latency), bandwidth};
    return {hosts, ranks_per_host, link, link, SimulatedTime::virtual_clock};
}

constexpr double time_of(std::size_t bytes) {
    return latency + static_cast<double>(bytes) / bandwidth;
}

void wait_until(SimulatedClock& clock, double seconds) {
    REQUIRE(clock.now().count() < seconds);
    CHECK(clock.pass_until(SimulatedSeconds(seconds)));
}

/// Returns how long one all_reduce takes until the last rank has ended.
double all_reduce_time(const SimulatedNetwork& network, AllReduceAlgorithm algorithm, std::size_t bytes) {
    const auto all_reduce = [&](ProcessGroup& group) {
        group.set_all_reduce_algorithm(algorithm);
        std::vector<float> data(bytes / sizeof(float), 1.0F);
        group.all_reduce(data);
        CHECK(data == std::vector<float>(data.size(), static_cast<float>(group.size())));
    };
    return dptk::launch_simulated(network, all_reduce).count();
}

}  // namespace

TEST_CASE("every verb works over a simulated network of 2 x 2 and of 1 x 3 ranks") {
    dptk::launch_simulated(uniform(2, 2), test::check_verbs);
    dptk::launch_simulated(uniform(1, 3), test::check_verbs);
}

TEST_CASE("messages and background work get along in real time") {
    SimulatedNetwork network = {.hosts = 2, .ranks_per_host = 2};
    network.between_hosts = {.latency = std::chrono::microseconds(20), .bytes_per_second = 1e9};
    dptk::launch_simulated(network, test::check_messages);
    dptk::launch_simulated(network, test::check_many);
}

TEST_CASE(
    "a message arrives latency + bytes / bandwidth after it was sent, and its sender continues earlier") {
    dptk::launch_simulated(uniform(2, 1), [](ProcessGroup& group, SimulatedClock& clock) {
        std::vector<std::byte> data(512);
        if (group.rank() == 0) {
            group.send(data, 1);
            CHECK(clock.now().count() == 0.5);
        } else {
            group.recv(data, 0);
            CHECK(clock.now().count() == time_of(512));
        }
    });
}

TEST_CASE("the times of a chain of messages add up, and returned is that of the last rank") {
    const auto pass_on = [](ProcessGroup& group, SimulatedClock& clock) {
        std::array<double, 32> data = {};
        if (group.rank() > 0) group.recv(data, group.rank() - 1);
        CHECK(clock.now().count() == group.rank() * time_of(256));
        if (group.rank() + 1 < group.size()) group.send(data, group.rank() + 1);
    };
    CHECK(dptk::launch_simulated(uniform(5, 1), pass_on).count() == 4 * time_of(256));
}

TEST_CASE("a link carries one message at a time in each direction") {
    dptk::launch_simulated(uniform(3, 1), [](ProcessGroup& group, SimulatedClock& clock) {
        std::vector<std::byte> data(1024);
        std::vector<std::byte> all(3 * data.size());
        group.gather(data, all, 0);  // two messages arrive at rank 0
        CHECK(clock.now().count() == (group.rank() == 0 ? latency + 2 : 1));
        wait_until(clock, 10);
        if (group.rank() == 0) {  // it sends two messages
            group.send(data, 1);
            group.send(data, 2);
            CHECK(clock.now().count() == 12);
        } else {
            group.recv(data, 0);
            CHECK(clock.now().count() == 10 + latency + group.rank());
        }
    });
    dptk::launch_simulated(uniform(2, 1), [](ProcessGroup& group, SimulatedClock& clock) {
        std::vector<std::byte> data(1024);
        std::vector<std::byte> other(1024);
        dptk::Work sent = group.send_async(data, 1 - group.rank());
        group.recv(other, 1 - group.rank());
        sent.wait();
        CHECK(clock.now().count() == time_of(1024));
    });
}

TEST_CASE("a message that came in while another was waited for does not come after it") {
    dptk::launch_simulated(uniform(3, 1), [](ProcessGroup& group, SimulatedClock& clock) {
        std::vector<std::byte> data(1024);
        if (group.rank() == 1) clock.compute(std::chrono::seconds(100));
        if (group.rank() > 0) return group.send(data, 0);
        group.recv(data, 1);
        CHECK(clock.now().count() == 100 + time_of(1024));
        group.recv(data, 2);
        CHECK(clock.now().count() == 100 + time_of(1024));
    });
}

TEST_CASE("an all_reduce takes what the formula of its algorithm says") {
    // Thakur, Rabenseifner and Gropp: "Optimization of Collective Communication Operations in MPICH", 2005.
    for (const int rounds : {1, 2, 3}) {
        const int ranks = 1 << rounds;
        const SimulatedNetwork network = uniform(ranks, 1);
        for (const std::size_t bytes : {std::size_t{64}, std::size_t{1} << 16}) {
            const double slice = static_cast<double>(bytes) / ranks / bandwidth;
            using enum AllReduceAlgorithm;
            CHECK(all_reduce_time(network, ring, bytes) == 2 * (ranks - 1) * (latency + slice));
            CHECK(all_reduce_time(network, tree, bytes) == 2 * rounds * time_of(bytes));
            CHECK(all_reduce_time(network, recursive_doubling, bytes) == rounds * time_of(bytes));
            CHECK(all_reduce_time(network, recursive_halving, bytes) ==
                  2 * rounds * latency + 2 * (ranks - 1) * slice);
        }
    }
}

TEST_CASE("a ring is faster than a tree for large buffers, and slower for small ones") {
    using enum AllReduceAlgorithm;
    const SimulatedNetwork network = uniform(6, 1);
    CHECK(all_reduce_time(network, ring, 65536) < all_reduce_time(network, tree, 65536));
    CHECK(all_reduce_time(network, ring, 64) > all_reduce_time(network, tree, 64));
}

TEST_CASE("ranks of one host are as near as its link says, and know who is there") {
    SimulatedNetwork network = uniform(2, 2);
    network.inside_host = {SimulatedSeconds(latency / 4), 4 * bandwidth};
    dptk::launch_simulated(network, [](ProcessGroup& group, SimulatedClock& clock) {
        CHECK(group.local_rank() == group.rank() % 2);
        CHECK(group.local_size() == 2);
        std::vector<std::byte> data(512);
        if (group.rank() == 0) {
            group.send(data, 1);
        } else if (group.rank() == 1) {
            group.recv(data, 0);
            CHECK(clock.now().count() == time_of(512) / 4);
            group.send(data, 2);
        } else if (group.rank() == 2) {
            group.recv(data, 1);
            CHECK(clock.now().count() == time_of(512) / 4 + time_of(512));
        }
        ProcessGroup part = group.subgroup({3, 0, 1});
        if (!part.is_member()) return;
        CHECK(part.local_size() == (group.rank() == 3 ? 1 : 2));
        CHECK(part.local_rank() == (group.rank() == 1 ? 1 : 0));
        wait_until(clock, 10);
        if (part.rank() == 1) part.send(data, 2);
        if (part.rank() != 2) return;
        part.recv(data, 1);
        CHECK(clock.now().count() == 10 + time_of(512) / 4);
    });
}

TEST_CASE("what a rank computes delays only the ranks that wait for it") {
    dptk::launch_simulated(uniform(2, 2), [](ProcessGroup& group, SimulatedClock& clock) {
        if (group.rank() == 1) clock.compute(std::chrono::milliseconds(500));
        std::array<std::byte, 1024> data = {};
        if (group.rank() % 2 == 1) return group.send(data, group.rank() - 1);
        group.recv(data, group.rank() + 1);
        CHECK(clock.now().count() == time_of(1024) + (group.rank() == 0 ? 0.5 : 0));
    });
}

TEST_CASE("messages that were started go on while the rank computes") {
    dptk::launch_simulated(uniform(2, 1), [](ProcessGroup& group, SimulatedClock& clock) {
        std::vector<std::byte> data(2048);
        dptk::Work work = group.rank() == 0 ? group.send_async(data, 1) : group.recv_async(data, 0);
        clock.compute(std::chrono::seconds(1));
        CHECK_FALSE(work.done());
        work.wait();
        CHECK(clock.now().count() == (group.rank() == 0 ? 2 : time_of(2048)));
        work = group.rank() == 0 ? group.send_async(data, 1) : group.recv_async(data, 0);
        clock.compute(std::chrono::seconds(10));
        const double before = clock.now().count();
        work.wait();
        CHECK(work.done());
        CHECK(clock.now().count() == before);
    });
}

TEST_CASE("each run gives the same virtual times") {
    const auto run = [] {
        SimulatedNetwork network = uniform(4, 4);
        network.inside_host = {SimulatedSeconds(1e-6), 1.3e10};
        network.between_hosts = {SimulatedSeconds(1.7e-5), 1.1e9};
        std::vector<double> ends(16);
        dptk::launch_simulated(network, [&](ProcessGroup& group, SimulatedClock& clock) {
            const auto rank = static_cast<std::size_t>(group.rank());
            ProcessGroup other = group.duplicate();
            std::vector<float> gradients(300);
            std::vector<float> data(30);
            std::vector<float> all(16 * data.size());
            for (int step = 0; step < 5; ++step) {
                clock.compute(SimulatedSeconds(1e-5 * static_cast<double>((rank * 7 + 3) % 5)));
                dptk::Work work = other.all_reduce_async(gradients);
                group.gather(data, all, step);
                group.all_to_all(all, all);
                group.barrier();
                work.wait();
            }
            ends[rank] = clock.now().count();
        });
        return ends;
    };
    const std::vector<double> expected = run();
    for (int i = 0; i < 5; ++i) CHECK(run() == expected);
}

TEST_CASE("in virtual time a call that was started takes its time when somebody waits for it") {
    dptk::launch_simulated(uniform(2, 1), [](ProcessGroup& group, SimulatedClock& clock) {
        std::vector<std::byte> data(1024);
        dptk::Work work = group.all_gather_async(std::span(data).first(512), data);
        CHECK(clock.now().count() == 0);
        clock.compute(std::chrono::seconds(1));
        work.wait();
        CHECK(clock.now().count() == 1 + time_of(512));
    });
}

TEST_CASE("256 ranks agree, at the time that the formula says") {
    CHECK(all_reduce_time(uniform(16, 16), AllReduceAlgorithm::recursive_doubling, 64) == 8 * time_of(64));
}

TEST_CASE("in real time an all_reduce takes its time, which work hides") {
    constexpr SimulatedSeconds pause = std::chrono::milliseconds(200);
    const SimulatedNetwork network = {.hosts = 2, .between_hosts = {.latency = pause}};
    const auto all_reduce = [](ProcessGroup& group) { CHECK(group.all_reduce_value(1) == 2); };
    CHECK(dptk::launch_simulated(network, all_reduce) >= pause);

    const auto overlap = [&](ProcessGroup& group, SimulatedClock& clock) {
        std::array<int, 1> data = {1};
        dptk::Work work = group.all_reduce_async(data);
        clock.compute(pause);
        work.wait();
        CHECK(data[0] == 2);
    };
    // Retries, since other load on the machine may disturb real time.
    SimulatedSeconds best = dptk::launch_simulated(network, overlap);
    for (int i = 0; i < 20 && best >= 2 * pause; ++i)
        best = std::min(best, dptk::launch_simulated(network, overlap));
    CHECK(best >= pause);
    CHECK(best < 2 * pause);
}

TEST_CASE(
    "a rank's exception ends the others' waits at once, also while they sleep for a message or compute") {
    const dptk::SimulatedLink slow{std::chrono::hours(100), 1e-3};
    for (const auto time : {SimulatedTime::real, SimulatedTime::virtual_clock}) {
        std::atomic<int> lost = 0;
        const auto fail = [&](ProcessGroup& group, SimulatedClock& clock) {
            std::vector<double> data(1000);
            std::string text;
            const auto wait = [&] {
                if (group.rank() == 0) group.send(data, 1);
                if (group.rank() == 1) group.recv(data, 0);
                if (group.rank() == 2) clock.compute(std::chrono::hours(100));
                if (group.rank() == 3) group.recv_async(data, 0, 1).wait();
                if (group.rank() < 4) group.barrier();
            };
            if (group.rank() == 4) throw std::runtime_error("boom");
            lost += test::throws<dptk::PeerLostError>(text, wait) && test::contains(text, "rank 4: boom");
        };
        CHECK_THROWS_WITH_AS(dptk::launch_simulated({5, 1, slow, slow, time}, fail), "boom",
                             std::runtime_error);
        CHECK(lost == 4);
    }
}

TEST_CASE("a rank that ends early is an error for those that wait for it, or send to it") {
    for (const auto time : {SimulatedTime::real, SimulatedTime::virtual_clock}) {
        const auto run = [&](int waiting) {
            dptk::launch_simulated({.hosts = 2, .time = time}, [&](ProcessGroup& group) {
                if (group.rank() != waiting) return;
                std::array<int, 1> data = {};
                while (true) group.rank() == 0 ? group.send(data, 1) : static_cast<void>(group.recv(data));
            });
        };
        CHECK_THROWS_WITH_AS(run(0), "rank 1 has left the group", dptk::PeerLostError);
        CHECK_THROWS_WITH_AS(run(1), "all other ranks have left the group", dptk::PeerLostError);
    }
}

TEST_CASE("a message of another size than its receiver expects is a MismatchError") {
    const auto run = [] {
        dptk::launch_simulated(uniform(2, 1), [](ProcessGroup& group) {
            std::vector<float> data(group.rank() == 0 ? 3 : 4);
            group.rank() == 0 ? group.send(data, 1) : static_cast<void>(group.recv(data, 0));
        });
    };
    CHECK_THROWS_WITH_AS(run(), "rank 0 sends 12 bytes to rank 1, which expects 16 bytes",
                         dptk::MismatchError);
}

TEST_CASE("networks that cannot be are refused, and so are times") {
    const auto refuses = [](const SimulatedNetwork& network, std::string_view why) {
        std::string text;
        return test::throws<dptk::ArgumentError>(
                   text, [&] { dptk::launch_simulated(network, [](ProcessGroup&) {}); }) &&
               test::contains(text, why);
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(refuses({.hosts = 0}, "invalid simulated network: expected 1 or more hosts, got 0"));
    CHECK(refuses({.ranks_per_host = -2}, "expected 1 or more ranks per host, got -2"));
    CHECK(refuses({.hosts = 1 << 20, .ranks_per_host = 1 << 20},
                  "expected at most 2147483647 ranks, got 1048576 hosts with 1048576 ranks each"));
    CHECK(refuses({.inside_host = {.latency = SimulatedSeconds(-1)}},
                  "expected a finite latency of 0 s or more inside a host, got -1 s"));
    CHECK(refuses({.between_hosts = {.latency = SimulatedSeconds(nan)}},
                  "expected a finite latency of 0 s or more between hosts, got "));
    CHECK(refuses({.between_hosts = {.bytes_per_second = 0}},
                  "expected more than 0 bytes per second between hosts, got 0"));
    CHECK(refuses({.inside_host = {.bytes_per_second = nan}},
                  "expected more than 0 bytes per second inside a host, got "));
    dptk::launch_simulated({}, [](ProcessGroup&, SimulatedClock& clock) {
        CHECK_THROWS_AS(clock.compute(SimulatedSeconds(-1)), dptk::ArgumentError);
        CHECK_THROWS_AS(clock.compute(SimulatedSeconds(std::numeric_limits<double>::infinity())),
                        dptk::ArgumentError);
    });
}
