// Ranks with different states exchange them: the latest one counts, also if the rank that sends it is lost.
#include <doctest/doctest.h>
#include <dptk/comm/tcp.hpp>
#include <dptk/control/store/tcp_store.hpp>
#include <dptk/ddp.hpp>
#include <dptk/ddp/elastic_state.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "elastic/elastic_ranks.hpp"

namespace {

/// An object whose process is killed when it is sent.
struct Trap {
    bool is_set = false;
};

}  // namespace

template <>
struct dptk::Serializer<Trap> {
    static std::string to_bytes(const Trap& trap) {
        if (trap.is_set) raise(SIGKILL);
        return "trap";
    }
    static Trap from_bytes(std::string_view) { return {}; }
};

namespace {

using namespace std::chrono_literals;

/// All ranks complete a step, and rank 0 another one. The last rank is killed, and rank 0 when it sends its
/// state. The others must have the state after the first step.
int lose_the_last_step() {
    try {
        dptk::ProcessGroup group =
            dptk::init_process_group({.timeout = 20s, .heartbeat_timeout = 2s, .elastic = true});
        std::vector<float> values(10, 1), gradients(10, 1);
        dptk::SGD<float> sgd({.lr = 1, .momentum = 0.5});
        dptk::DistributedDataParallel ddp(group, values, gradients);
        Trap trap;
        dptk::ElasticState state(group, ddp, sgd, trap);
        state.restore();
        const int rank = group.rank();
        trap.is_set = rank == 0;
        for (const bool completes : {true, rank == 0}) {
            ddp.synchronize();
            if (!completes) break;
            sgd.step(ddp.parameters());
            state.commit();
        }
        if (rank == group.size() - 1) raise(SIGKILL);
        try {
            while (true) group.barrier();
        } catch (const dptk::MembershipChanged&) {
            state.restore();
        }
        group.barrier();
        const bool well = group.size() == 2 && state.steps() == 1 && values == std::vector<float>(10, 0) &&
                          sgd.state(0).arrays == std::vector<std::vector<float>>{std::vector<float>(10, 1)};
        return well ? 0 : 3;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

/// Rank 0 completes the first step, and is stopped. Rank 1 has not completed it, and repeats it alone. Then
/// both go on together, with the state of rank 1: rank 0 is killed if it sends its own.
int complete_a_step_twice(std::uint16_t port) {
    constexpr std::chrono::milliseconds heartbeat_timeout{500};
    try {
        const auto store = dptk::TcpStore::connect({"127.0.0.1", port}, {.token = "/test"});
        dptk::ProcessGroup group = dptk::init_process_group(
            {.timeout = 20s, .heartbeat_timeout = heartbeat_timeout, .elastic = true});
        std::vector<float> values(10, 1), gradients(10);
        dptk::SGD<float> sgd({.lr = 1, .momentum = 0.5});
        dptk::DistributedDataParallel ddp(group, values, gradients);
        Trap trap;
        dptk::ElasticState state(group, ddp, sgd, trap);
        state.restore();
        const bool is_first = group.rank() == 0;
        const auto synchronize = [&] {
            gradients.assign(10, static_cast<float>(group.size()));
            ddp.synchronize();
        };
        const auto complete = [&] {
            trap.is_set = is_first;
            sgd.step(ddp.parameters());
            state.commit();
        };
        const auto await_change = [&] {
            try {
                while (true) {
                    synchronize();
                    std::this_thread::sleep_for(1ms);
                }
            } catch (const dptk::MembershipChanged&) {
                state.restore();
            }
        };
        synchronize();
        if (is_first) {
            complete();
            raise(SIGSTOP);
        } else {
            await_change();
            synchronize();
            complete();
            store->set("alone", "");
        }
        await_change();
        const bool well = group.size() == 2 && state.steps() == 1 && values == std::vector<float>(10, 0) &&
                          sgd.state(0).arrays == std::vector<std::vector<float>>{std::vector<float>(10, 1)};
        group.barrier();
        return well ? 0 : 3;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

/// Rank 1 alone learns that a step with a sharded optimizer is complete, and is stopped. While the others
/// repeat the step without it, it joins again: no other rank has its part of that state any more.
int complete_a_sharded_step_alone(std::uint16_t port) {
    constexpr std::chrono::milliseconds heartbeat_timeout{500};
    try {
        const auto store = dptk::TcpStore::connect({"127.0.0.1", port}, {.token = "/test"});
        dptk::ProcessGroup group = dptk::init_process_group(
            {.timeout = 20s, .heartbeat_timeout = heartbeat_timeout, .elastic = true});
        std::vector<float> values(6000), gradients(6000, -1);
        dptk::ShardedOptimizer sharded(group, values, gradients, dptk::SGD<float>({.lr = 1}));
        int step = 0;
        dptk::ElasticState state(group, sharded, step);
        state.restore();
        bool is_first_time = true;
        while (step < 4) {
            try {
                if (step == 1 && group.size() == 2) {
                    store->set("repeating", "");
                    std::this_thread::sleep_for(20ms);
                    group.barrier();
                    continue;
                }
                sharded.synchronize();
                sharded.step();
                ++step;
                if (step == 2 && std::exchange(is_first_time, false)) {
                    if (group.rank() != 1) group.barrier();  // in which the others learn that it is lost
                    state.commit();
                    raise(SIGSTOP);
                    continue;
                }
                state.commit();
            } catch (const dptk::MembershipChanged&) {
                state.restore();
            }
        }
        group.barrier();
        return group.size() == 3 && values == std::vector<float>(6000, 4) ? 0 : 3;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

}  // namespace

TEST_CASE("ranks keep their state if the rank that sends a later one is lost") {
    ElasticRanks ranks({.first_size = 4}, [](std::uint16_t) { return lose_the_last_step(); });
    REQUIRE(ranks.run_until_all_have_ended());
    CHECK(ranks.failures() == 0);
    CHECK(ranks.monitor().generation().members == std::vector<dptk::detail::MemberId>{2, 3});
}

TEST_CASE("of two states after the same step, that of the later generation counts") {
    ElasticRanks ranks({.first_size = 2, .heartbeat_timeout = 500ms}, complete_a_step_twice);
    REQUIRE(ranks.run_until([&] { return ranks.store().find("alone").has_value(); }));
    ranks.send(1, SIGCONT);
    REQUIRE(ranks.run_until_all_have_ended());
    CHECK(ranks.failures() == 0);
    CHECK(ranks.monitor().generation().members.size() == 2);
}

TEST_CASE("a sharded step that only a stopped rank has completed does not count") {
    ElasticRanks ranks({.first_size = 3, .heartbeat_timeout = 500ms}, complete_a_sharded_step_alone);
    REQUIRE(ranks.run_until([&] { return ranks.store().find("repeating").has_value(); }));
    ranks.send(2, SIGCONT);
    REQUIRE(ranks.run_until_all_have_ended());
    CHECK(ranks.failures() == 0);
    CHECK(ranks.monitor().generation().members.size() == 3);
}
