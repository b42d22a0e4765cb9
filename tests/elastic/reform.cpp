// Elastic jobs: groups that are formed again when processes are killed, or start while the job runs.
#include <doctest/doctest.h>
#include <dptk/comm/elastic.hpp>
#include <dptk/comm/init.hpp>
#include <dptk/comm/tcp.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "elastic/elastic_ranks.hpp"

namespace {

using namespace std::chrono_literals;

/// Counts to `last`, one with each barrier of the group, and publishes the count.
int count_together(std::int64_t last) {
    try {
        dptk::ProcessGroup group =
            dptk::init_process_group({.timeout = 20s, .heartbeat_timeout = 2s, .elastic = true});
        const std::shared_ptr<dptk::Store> store = group.channel().control().store();
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
                    group.channel().control().store()->set(
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

}  // namespace

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
