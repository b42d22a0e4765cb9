// Elastic training: processes are killed and started at random steps, and the values are those of a training
// that changes its number of ranks at the same steps.
#include <doctest/doctest.h>
#include <dptk/comm/detail/elastic_group.hpp>
#include <dptk/comm/tcp.hpp>
#include <dptk/control/store/tcp_store.hpp>
#include <dptk/data/batch_cursor.hpp>
#include <dptk/ddp/elastic_state.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "elastic/elastic_ranks.hpp"
#include "elastic/model.hpp"
#include "elastic/replay.hpp"
#include "elastic/steps.hpp"

namespace {

using namespace std::chrono_literals;
using namespace elastic;

constexpr std::chrono::milliseconds heartbeat_timeout{500};

/// What a completed step has done: the number of its ranks, the position before it, and the values after it.
struct Step {
    int size = 0;
    std::size_t epoch = 0;
    std::size_t consumed = 0;
    std::uint64_t hash = 0;

    [[nodiscard]] std::string to_text() const {
        return std::to_string(size) + ' ' + std::to_string(epoch) + ' ' + std::to_string(consumed) + ' ' +
               std::to_string(hash);
    }

    [[nodiscard]] static Step parse(const std::string& text) {
        Step step;
        std::istringstream(text) >> step.size >> step.epoch >> step.consumed >> step.hash;
        return step;
    }
};

std::string step_key(std::int64_t step, std::int64_t generation) {
    return "step/" + std::to_string(step) + '/' + std::to_string(generation);
}

/// Returns a step as the last generation that has completed it has done it. A rank that was stopped may
/// complete it later in an earlier generation, which does not count.
std::optional<Step> find_step(ElasticRanks& job, std::int64_t step) {
    for (std::int64_t generation = job.monitor().generation().number; generation > 0; --generation)
        if (const auto text = job.store().find(step_key(step, generation))) return Step::parse(*text);
    return std::nullopt;
}

/// Trains for a number of epochs, and publishes each completed step.
template <class Steps>
int train(std::int64_t epochs, std::uint16_t port) {
    try {
        const auto log = dptk::TcpStore::connect({"127.0.0.1", port}, {.token = "/test"});
        dptk::ProcessGroup group = dptk::init_process_group(
            {.timeout = 20s, .heartbeat_timeout = heartbeat_timeout, .elastic = true});
        Model model;
        Steps steps(group, model);
        dptk::DistributedSampler sampler(samples, group, sampling);
        dptk::BatchCursor cursor(sampler, batch_size, epochs);
        dptk::ElasticState state = steps.elastic_state(group, cursor);
        while (true) {
            try {
                if (cursor.done()) {
                    group.barrier();
                    return 0;
                }
                const dptk::SamplerState before = cursor.state();
                model.compute(cursor.batch());
                std::this_thread::sleep_for(1ms);
                steps.synchronize(cursor.batch().size());
                steps.step();
                cursor.advance();
                state.commit();
                log->set(
                    step_key(state.steps(), dptk::detail::ElasticGroup::generation(group).number),
                    Step{group.size(), static_cast<std::size_t>(before.epoch), before.consumed, model.hash()}
                        .to_text());
            } catch (const dptk::MembershipChanged&) {
                state.restore();
            }
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "process %d: %s\n", getpid(), error.what());
        return 1;
    }
}

/// Trains while ranks are killed and started at random, and compares with a replay. Between two changes there
/// are at least `between` steps.
template <class Steps>
void check_training(unsigned seed, std::size_t ranks, std::int64_t epochs, int changes,
                    std::int64_t between) {
    CAPTURE(seed);
    std::minstd_rand random(seed);
    ElasticRanks job({.first_size = ranks, .heartbeat_timeout = heartbeat_timeout},
                     [&](std::uint16_t port) { return train<Steps>(epochs, port); });
    auto steps_done = [&, step = std::int64_t{0}]() mutable {
        while (find_step(job, step + 1)) ++step;
        return step;
    };
    std::int64_t until = 0;
    for (int change = 0; change < changes; ++change) {
        until += static_cast<std::int64_t>(random() % 8);
        if (between > 0) until = std::max(until, steps_done() + between);
        if (!job.run_until([&] { return steps_done() >= until || job.running().empty(); })) break;
        if (job.running().empty()) break;
        job.disturb(random, {.kill = 40, .stop = 20});
    }
    REQUIRE(job.run_until_all_have_ended());
    MESSAGE("seed " << seed << ": generations " << job.monitor().generation().number);
    CHECK(job.failures() == 0);
    std::vector<Step> steps;
    for (std::int64_t i = 1; const auto step = find_step(job, i); ++i) steps.push_back(*step);
    REQUIRE_FALSE(steps.empty());
    std::size_t position = 0;
    for (const Step& step : steps) {  // each sample once in each epoch
        CHECK(step.consumed == position % samples);
        CHECK(step.epoch == position / samples);
        position =
            std::min(position + static_cast<std::size_t>(step.size) * batch_size, (step.epoch + 1) * samples);
    }
    CHECK(position == samples * static_cast<std::size_t>(epochs));
    std::vector<int> sizes;
    for (const Step& step : steps) sizes.push_back(step.size);
    const std::vector<std::uint64_t> expected = replay<Steps>(sizes, epochs);
    REQUIRE(expected.size() == steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
        INFO("step ", i, " of ", steps.size(), " with ", steps[i].size, " ranks");
        REQUIRE(steps[i].hash == expected[i]);
    }
}

}  // namespace

TEST_CASE("the values of an elastic training are those of a replay with the same numbers of ranks") {
    const char* const given = std::getenv("DPTK_TEST_SEEDS");
    const int seeds = given == nullptr ? 2 : std::atoi(given);
    for (int seed = 1; seed <= seeds; ++seed)
        check_training<ReplicatedSteps>(static_cast<unsigned>(seed), 4, 2, 12, 0);
}

TEST_CASE("the state of a sharded optimizer is not lost with one rank") {
    const char* const given = std::getenv("DPTK_TEST_SEEDS");
    const int seeds = given == nullptr ? 2 : std::atoi(given);
    for (int seed = 1; seed <= seeds; ++seed)
        check_training<ShardedSteps>(static_cast<unsigned>(seed), 4, 8, 12, 3);
}
