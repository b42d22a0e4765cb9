// Elastic jobs: groups that are formed again when processes are killed, or start while the job runs.
#include <doctest/doctest.h>
#include <dptk/comm/elastic.hpp>
#include <dptk/comm/init.hpp>
#include <dptk/comm/tcp.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "elastic/elastic_ranks.hpp"

namespace {

using namespace std::chrono_literals;

/// Counts to `last`, one with each barrier of the group, and publishes the count.
int count_together(std::int64_t last) {
    try {
        dptk::ProcessGroup group =
            dptk::init_process_group({.timeout = 20s, .heartbeat_timeout = 2s, .elastic = true});
        std::int64_t count = 0;
        const auto exchange = [&] { count = group.all_reduce_value(count, dptk::ReduceOp::max); };
        dptk::reform(group, exchange);
        while (count < last) {
            try {
                const std::int64_t sum = group.all_reduce_value(std::int64_t{1});
                if (sum != group.size()) return 3;
                group.barrier();
                ++count;
                if (group.rank() == 0)
                    group.engine().control()->store()->set(
                        "count", std::to_string(count) + " " + std::to_string(group.size()));
            } catch (const dptk::MembershipChanged&) {
                dptk::reform(group, exchange);
            }
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

/// What a process holds.
struct Held {
    int descriptors = 0;
    int threads = 0;
    long kibibytes = 0;

    [[nodiscard]] static Held of(pid_t process) {
        const std::string folder = "/proc/" + std::to_string(process);
        const std::filesystem::directory_iterator descriptors(folder + "/fd");
        Held out{.descriptors = static_cast<int>(std::distance(begin(descriptors), end(descriptors)))};
        std::ifstream status(folder + "/status");
        for (std::string word; status >> word;) {
            if (word == "Threads:") status >> out.threads;
            if (word == "VmRSS:") status >> out.kibibytes;
        }
        return out;
    }
};

}  // namespace

TEST_CASE("a process that stays in the job holds no more after many changes") {
    const auto number = [](const char* name, int other) {
        const char* const given = std::getenv(name);
        return given == nullptr ? other : std::atoi(given);
    };
    const int changes = number("DPTK_TEST_CHANGES", 8);
    const std::chrono::milliseconds pause(number("DPTK_TEST_PAUSE", 0));
    ElasticRanks ranks({.first_size = 2, .heartbeat_timeout = 2s},
                       [](std::uint16_t) { return count_together(100'000'000); });
    std::int64_t after = 0;
    const auto has_two = [&] {
        const dptk::detail::Generation& now = ranks.monitor().generation();
        const bool has = now.number > after && now.members.size() == 2 && !ranks.monitor().is_broken() &&
                         ranks.store().find("gen/" + std::to_string(now.number) + "/count");
        if (has) after = now.number;
        return has;
    };
    REQUIRE(ranks.run_until(has_two));
    Held before, own_before;
    for (int change = 0; change < changes; ++change) {
        if (change == 3) {
            before = Held::of(ranks.running().at(1));
            own_before = Held::of(getpid());
        }
        ranks.send(ranks.running().rbegin()->first, SIGKILL);
        static_cast<void>(ranks.start());
        REQUIRE(ranks.run_until(has_two));
        const auto end = std::chrono::steady_clock::now() + pause;
        static_cast<void>(ranks.run_until([&] { return std::chrono::steady_clock::now() >= end; }));
    }
    std::this_thread::sleep_for(300ms);  // the last heartbeats of earlier groups
    const Held end = Held::of(ranks.running().at(1));
    INFO("KiB: ", before.kibibytes, " then ", end.kibibytes);
    CHECK(end.descriptors <= before.descriptors + 2);
    CHECK(end.threads <= before.threads + 2);
    CHECK(end.kibibytes <= before.kibibytes + 1024);
    const Held own_end = Held::of(getpid());  // of this process, which has the store
    INFO("KiB: ", own_before.kibibytes, " then ", own_end.kibibytes, " in the store's process");
    CHECK(own_end.kibibytes <= own_before.kibibytes + 1024 + 2 * changes);
}

TEST_CASE("a group is formed again after a rank was killed, whichever it is") {
    ElasticRanks ranks({.first_size = 3, .heartbeat_timeout = 2s},
                       [](std::uint16_t) { return count_together(100'000); });
    const auto size_is = [&](std::size_t size) {
        return [&, size] {
            const dptk::detail::Generation& now = ranks.monitor().generation();
            return now.members.size() == size && !ranks.monitor().is_broken() &&
                   ranks.store().find("gen/" + std::to_string(now.number) + "/count");
        };
    };
    REQUIRE(ranks.run_until(size_is(3)));
    ranks.send(1, SIGKILL);  // rank 0
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(ranks.run_until(size_is(2)));
    MESSAGE("ms: " << (std::chrono::steady_clock::now() - begin) / 1ms);
    static_cast<void>(ranks.start());
    REQUIRE(ranks.run_until(size_is(3)));
    ranks.send(3, SIGKILL);
    REQUIRE(ranks.run_until(size_is(2)));
    ranks.send(2, SIGKILL);
    REQUIRE(ranks.run_until(size_is(1)));
    static_cast<void>(ranks.start());
    REQUIRE(ranks.run_until(size_is(2)));
    CHECK(ranks.failures() == 0);
}

TEST_CASE("a process that is lost before its first step costs the others nothing") {
    const auto program = [](std::uint16_t) {
        if (std::string(std::getenv("DPTK_MEMBER")) != "2") return count_together(50);
        const dptk::ProcessGroup group = dptk::init_process_group({.elastic = true});
        raise(group.size() == 1 ? SIGKILL : SIGABRT);  // as while it reads its data
        return 1;
    };
    ElasticRanks ranks({.first_size = 3, .heartbeat_timeout = 2s}, program);
    REQUIRE(ranks.run_until([&] { return !ranks.running().contains(2); }));
    static_cast<void>(ranks.start());
    REQUIRE(ranks.run_until_all_have_ended());
    CHECK(ranks.failures() == 0);
    CHECK(ranks.monitor().generation().number == 1);
    CHECK(ranks.monitor().generation().members == std::vector<dptk::detail::MemberId>{1, 3, 4});
}
