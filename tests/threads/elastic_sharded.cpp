// Sharded optimizers in elastic jobs whose ranks are threads: no state is lost with one rank, or mixed with
// another one.
#include <doctest/doctest.h>
#include <dptk/comm/elastic.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/data/batch_cursor.hpp>
#include <dptk/ddp.hpp>
#include <dptk/ddp/elastic_state.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elastic/model.hpp"
#include "elastic/steps.hpp"
#include "support/recorded_log.hpp"

namespace {

using namespace std::chrono_literals;

/// What ends a rank.
struct RankLost : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A training of the model with a sharded optimizer, for one epoch.
struct Training {
    explicit Training(dptk::ProcessGroup& group)
        : steps(group, model),
          sampler(elastic::samples, group, elastic::sampling),
          cursor(sampler, elastic::batch_size, 1),
          state(steps.elastic_state(group, cursor)) {}

    void step() {
        model.compute(cursor.batch());
        steps.synchronize(cursor.batch().size());
        steps.step();
        cursor.advance();
    }

    elastic::Model model;
    elastic::ShardedSteps steps;
    dptk::DistributedSampler sampler;
    dptk::BatchCursor cursor;
    dptk::ElasticState state;
};

/// A position that calls a function when it is received.
struct WatchedPosition {
    std::function<void()> is_received;
    int steps = 0;
    [[nodiscard]] int state() const { return steps; }
    void restore(int state, const dptk::ProcessGroup&) {
        steps = state;
        if (is_received) is_received();
    }
};

/// Calls `step` until it returns false, and restores the state whenever the ranks have changed.
template <class Step>
void run_steps(dptk::ElasticState& state, Step&& step) {
    bool has_begun = false;
    while (true) {
        try {
            if (!std::exchange(has_begun, true)) state.restore();
            if (!step()) return;
            state.commit();
        } catch (const dptk::MembershipChanged&) {
            state.restore();
        }
    }
}

}  // namespace

TEST_CASE("a state of a sharded optimizer that was loaded in a step is not lost with a rank") {
    const RecordedLog log;
    std::vector<dptk::OptimizerState<float>> loaded(3);
    for (std::size_t i = 0; i < 3; ++i) {
        loaded[i].steps = 7;
        for (const float first : {0.25F, 0.5F}) {
            std::vector<float>& array =
                loaded[i].arrays.emplace_back(std::array<std::size_t, 3>{100, 7, 193}[i]);
            std::iota(array.begin(), array.end(), first);
        }
    }
    std::atomic<int> checked = 0;
    const auto train = [&](dptk::ProcessGroup& group) {
        Training training(group);
        dptk::ElasticState& state = training.state;
        std::uint64_t hash = 0;
        const auto step = [&] {
            training.step();
            if (state.steps() == 1) {
                training.steps.load_state(loaded);
                hash = training.model.hash();
            }
        };
        while (state.steps() < 3) {
            try {
                if (state.steps() == 2) {
                    if (group.size() == 4 && group.rank() == 1) throw RankLost("after the state was loaded");
                    group.barrier();
                    const std::vector<dptk::OptimizerState<float>> all = training.steps.state();
                    CHECK(training.model.hash() == hash);
                    if (group.rank() == 0) {
                        for (std::size_t i = 0; i < 3; ++i) {
                            CHECK(all[i].steps == 7);
                            CHECK(all[i].arrays == loaded[i].arrays);
                        }
                    }
                    ++checked;
                }
                step();
                state.commit();
            } catch (const dptk::MembershipChanged&) {
                state.restore();
            }
        }
        group.barrier();
    };
    dptk::launch_threads(4, train, {.timeout = 20s, .elastic = true});
    CHECK(checked.load() == 3);
}

TEST_CASE(
    "a state that only some ranks have loaded when another one is lost is not mixed with that of the "
    "others") {
    const RecordedLog log;
    const auto train = [&](dptk::ProcessGroup& group) {
        std::vector<float> values(64), gradients(64, -1);
        dptk::ShardedOptimizer sharded(group, values, gradients,
                                       dptk::SGD<float>({.lr = 1, .momentum = 0.9}));
        dptk::ElasticState state(group, sharded);
        const std::vector<dptk::OptimizerState<float>> loaded{
            {.steps = 7, .arrays = {std::vector<float>(64, 42)}}};
        while (true) {
            try {
                if (state.steps() == 2 || (state.steps() == 1 && group.size() == 3)) {
                    const std::vector<dptk::OptimizerState<float>> all = sharded.state();
                    if (group.rank() == 0)
                        CHECK(all[0].arrays[0] == std::vector<float>(64, all[0].arrays[0][0]));
                    break;
                }
                sharded.synchronize();
                sharded.step();
                if (state.steps() == 1) {
                    // Rank 3 ends in the middle of the step, and rank 1 does not learn that it is complete.
                    if (group.rank() == 3) throw RankLost("in the second step");
                    if (group.rank() == 1) group.barrier();
                    sharded.load_state(loaded);
                }
                state.commit();
            } catch (const dptk::MembershipChanged&) {
                state.restore();
            }
        }
        group.barrier();
    };
    dptk::launch_threads(4, train, {.timeout = 20s, .elastic = true});
}

TEST_CASE("the other ranks say so if a part of a sharded optimizer's state is lost") {
    const RecordedLog log;
    std::atomic<int> told = 0;
    const auto train = [&](dptk::ProcessGroup& group) {
        Training training(group);
        dptk::ElasticState& state = training.state;
        try {
            state.run([&] { return training.cursor.done(); },
                      [&] {
                          if (state.steps() == 3 && group.size() == 4 && group.rank() % 2 == 1)
                              throw RankLost("with the only other copy");
                          training.step();
                      });
        } catch (const dptk::Error& error) {
            if (std::string(error.what()).find("was lost, because both ranks that had it") !=
                std::string::npos)
                ++told;
            throw;
        }
    };
    CHECK_THROWS(dptk::launch_threads(4, train, {.timeout = 20s, .elastic = true}));
    CHECK(told.load() == 2);
}

TEST_CASE("a sharded step is made once if its only rank is lost while it sends the new state") {
    const RecordedLog log;
    std::atomic<int> right = 0;
    const auto train = [&](dptk::ProcessGroup& group) {
        std::vector<float> values(64), gradients(64, -1);
        dptk::ShardedOptimizer sharded(group, values, gradients, dptk::SGD<float>({.lr = 1}));
        WatchedPosition position;
        dptk::ElasticState state(group, sharded, position);
        bool is_lost = false;
        position.is_received = [&] {
            if (is_lost) throw RankLost("rank 0, while it sends its state");
        };
        run_steps(state, [&] {
            if (position.steps == 4) return false;
            sharded.synchronize();
            sharded.step();
            ++position.steps;
            if (position.steps == 3 && group.size() == 4) {
                if (group.rank() == 3) {
                    std::this_thread::sleep_for(50ms);
                    throw RankLost("rank 3");
                }
                is_lost = group.rank() == 0;
                if (!is_lost) group.barrier();  // rank 0 alone completes the step
            }
            return true;
        });
        group.barrier();
        if (values == std::vector<float>(64, 4)) ++right;
    };
    dptk::launch_threads(4, train, {.timeout = 20s, .elastic = true});
    CHECK(right.load() == 2);
}

TEST_CASE("new ranks do not begin again if a part of a sharded optimizer's state is lost") {
    const RecordedLog log;
    std::atomic<int> started = 0, told = 0;
    std::atomic<bool> went_back = false;
    const auto train = [&](dptk::ProcessGroup& group) {
        const bool is_first = started++ < 4;
        std::vector<float> values(64), gradients(64, -1);
        dptk::ShardedOptimizer sharded(group, values, gradients,
                                       dptk::SGD<float>({.lr = 1, .momentum = 0.9}));
        dptk::ElasticState state(group, sharded);
        std::int64_t last = 0;
        const auto restore = [&] {
            state.restore();
            if (state.steps() < last) went_back = true;
        };
        try {
            restore();
            while (state.steps() < 6) {
                try {
                    if (is_first && last == 4 && group.size() == 4 && group.rank() % 2 == 1)
                        throw RankLost("both copies");
                    sharded.synchronize();
                    sharded.step();
                    state.commit();
                    last = state.steps();
                } catch (const dptk::MembershipChanged&) {
                    if (last == 4) std::this_thread::sleep_for(200ms);  // until the new ranks are there
                    restore();
                }
            }
        } catch (const dptk::Error& error) {
            if (std::string(error.what()).find("was lost, because both ranks that had it") !=
                std::string::npos)
                ++told;
            throw;
        }
    };
    CHECK_THROWS(dptk::launch_threads(4, train, {.timeout = 20s, .elastic = true, .max_restarts = 2}));
    CHECK_FALSE(went_back.load());
    CHECK(told.load() >= 2);
}

TEST_CASE("a rank may be lost after the state of one parameter was loaded") {
    const RecordedLog log;
    std::atomic<int> completed = 0;
    const auto train = [&](dptk::ProcessGroup& group) {
        std::vector<std::vector<float>> values{std::vector<float>(600), std::vector<float>(20)};
        std::vector<std::vector<float>> gradients = values;
        dptk::ShardedOptimizer sharded(group, values, gradients,
                                       dptk::SGD<float>({.lr = 1, .momentum = 0.9}));
        dptk::ElasticState state(group, sharded);
        run_steps(state, [&] {
            if (state.steps() == 2 && group.size() == 4 && group.rank() == 3) throw RankLost("rank 3");
            if (state.steps() == 2) {
                const auto loaded = sharded.state_on_all(1);
                CHECK(loaded.steps == 7);
                CHECK(loaded.arrays.at(0) == std::vector<float>(20, 42));
            }
            if (state.steps() == 4) return false;
            sharded.synchronize();
            sharded.step();
            if (state.steps() == 1)
                sharded.load_state_of(1, {.steps = 7, .arrays = {std::vector<float>(20, 42)}});
            return true;
        });
        group.barrier();
        ++completed;
    };
    dptk::launch_threads(4, train, {.timeout = 20s, .elastic = true});
    CHECK(completed.load() == 3);
}

TEST_CASE("tied parameters of an elastic job have the group that was set last") {
    const auto train = [&](dptk::ProcessGroup& group) {
        std::vector<float> value(40), gradient(40, -1);
        std::vector<std::span<float>> values{value, value}, gradients{gradient, gradient};
        dptk::ShardedOptimizer sharded(group, values, gradients, dptk::SGD<float>({.lr = 1}));
        sharded.set_group(std::array<std::size_t, 1>{1}, {.lr_factor = 0.5});
        sharded.set_group(std::array<std::size_t, 1>{0}, {.lr_factor = 2});
        dptk::ElasticState state(group, sharded);
        state.run([&] { return state.steps() == 1; },
                  [&] {
                      sharded.synchronize();
                      sharded.step();
                  });
        CHECK(value == std::vector<float>(40, 2));
    };
    dptk::launch_threads(2, train, {.timeout = 20s, .elastic = true});
}

TEST_CASE("sharded models that differ between ranks are an error on all of them") {
    const RecordedLog log;
    for (const std::size_t additional : {0U, 1U}) {
        std::atomic<std::size_t> started = 0;
        std::atomic<int> told = 0;
        const auto train = [&](dptk::ProcessGroup& group) {
            const std::size_t parameters = started++ == additional ? 3 : 2;
            std::vector<std::vector<float>> values(parameters, std::vector<float>(40)), gradients = values;
            dptk::ShardedOptimizer sharded(group, values, gradients, dptk::SGD<float>({.lr = 1}));
            dptk::ElasticState state(group, sharded);
            try {
                state.restore();
            } catch (const dptk::MismatchError&) {
                ++told;
                throw;
            }
        };
        CHECK_THROWS_AS(dptk::launch_threads(2, train, {.timeout = 20s, .elastic = true}),
                        dptk::MismatchError);
        CHECK(told.load() == 2);
    }
}
