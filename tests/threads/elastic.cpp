// Elastic jobs whose ranks are threads: an exception ends one of them, and the others continue.
#include <doctest/doctest.h>
#include <dptk/comm/elastic.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/data/batch_cursor.hpp>
#include <dptk/ddp.hpp>
#include <dptk/ddp/elastic_state.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "elastic/model.hpp"
#include "elastic/replay.hpp"
#include "elastic/steps.hpp"
#include "support/recorded_log.hpp"

namespace {

using namespace std::chrono_literals;

/// What ends a rank in the middle of a step.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

bool has_line(const RecordedLog& log, const std::string& part) {
    const std::vector<std::string> lines = log.lines();
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

/// A completed step: the number of its ranks, and the values after it.
struct ElasticStep {
    int size = 0;
    std::uint64_t hash = 0;
};

constexpr std::int64_t epochs_of_threads = 2;

/// Trains with threads, of which `faults` end at random places in a step, at least `between` steps after
/// each other. Returns the steps.
template <class Steps>
std::vector<ElasticStep> train_with_faults(unsigned seed, int threads, int faults, std::size_t between) {
    std::mutex mutex;
    std::minstd_rand random(seed);
    int left = faults;
    std::size_t next = 0;
    std::map<std::int64_t, ElasticStep> steps;
    const auto maybe_throw = [&](const dptk::ProcessGroup& group) {
        const std::lock_guard lock(mutex);
        if (left == 0 || group.size() == 1 || random() % 100 >= 4) return;
        if (steps.size() < next) return;
        --left;
        next = steps.size() + between;
        throw Fault("a fault of seed " + std::to_string(seed));
    };
    dptk::launch_threads(threads,
                         [&](dptk::ProcessGroup& group) {
                             elastic::Model model;
                             Steps own(group, model);
                             dptk::DistributedSampler sampler(elastic::samples, group, elastic::sampling);
                             dptk::BatchCursor cursor(sampler, elastic::batch_size, epochs_of_threads);
                             dptk::ElasticState state = own.elastic_state(group, cursor);
                             state.run([&] { return cursor.done(); },
                                       [&] {
                                           maybe_throw(group);
                                           model.compute(cursor.batch());
                                           own.synchronize(cursor.batch().size());
                                           maybe_throw(group);
                                           own.step();
                                           cursor.advance();
                                           const std::lock_guard lock(mutex);
                                           steps[state.steps()] = {group.size(), model.hash()};
                                       });
                         },
                         {.timeout = 20s, .elastic = true, .max_restarts = faults / 2});
    std::vector<ElasticStep> out;
    for (const auto& [number, step] : steps) out.push_back(step);
    return out;
}

template <class Steps>
void check_training_of_threads(unsigned seed, std::size_t between) {
    CAPTURE(seed);
    const RecordedLog log;
    const std::vector<ElasticStep> steps = train_with_faults<Steps>(seed, 4, 6, between);
    CHECK(log.lines().size() >= 3);  // there were faults
    std::vector<int> sizes;
    for (const ElasticStep& step : steps) sizes.push_back(step.size);
    const std::vector<std::uint64_t> expected = elastic::replay<Steps>(sizes, epochs_of_threads);
    REQUIRE(expected.size() == steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) REQUIRE(steps[i].hash == expected[i]);
}

}  // namespace

TEST_CASE("threads that throw leave the values of a training with the same numbers of ranks") {
    const char* const given = std::getenv("DPTK_TEST_SEEDS");
    const unsigned seeds = given == nullptr ? 5 : static_cast<unsigned>(std::atoi(given));
    for (unsigned seed = 1; seed <= seeds; ++seed) {
        check_training_of_threads<elastic::ReplicatedSteps>(seed, 0);
        check_training_of_threads<elastic::ShardedSteps>(seed, 3);
    }
}

TEST_CASE("an ElasticState runs again with what the program has changed meanwhile") {
    const auto train = [&](dptk::ProcessGroup& group) {
        std::vector<float> values(10), gradients(10, -1);
        dptk::SGD<float> sgd({.lr = 1});
        dptk::DistributedDataParallel ddp(group, values, gradients);
        int left = 0, steps = 0;
        dptk::ElasticState state(group, ddp, sgd, left);
        for (int phase = 0; phase < 2; ++phase) {
            left = 3;
            state.run([&] { return left == 0; },
                      [&] {
                          ddp.synchronize();
                          sgd.step(ddp.parameters());
                          --left;
                          ++steps;
                      });
        }
        CHECK(steps == 6);
        CHECK(values == std::vector<float>(10, 6));
    };
    dptk::launch_threads(2, train, {.timeout = 20s, .elastic = true});
}

TEST_CASE("a thread that takes the place of another one joins at the others' next step") {
    const RecordedLog log;
    std::atomic<bool> has_thrown = false;
    std::atomic<int> started = 0;
    const auto end = std::chrono::steady_clock::now() + 20s;
    dptk::launch_threads(
        3,
        [&](dptk::ProcessGroup& group) {
            const bool is_new = ++started > 3;
            CHECK(group.size() == 1);
            std::int64_t count = 0;
            const auto exchange = [&] { count = group.all_reduce_value(count, dptk::ReduceOp::max); };
            dptk::reform(group, exchange);
            CHECK(is_new == (count >= 100));
            while (true) {
                try {
                    if (count == 100 && group.rank() == 1 && !has_thrown.exchange(true))
                        throw Fault("in the middle");
                    const bool is_late = std::chrono::steady_clock::now() > end;
                    const int all = group.all_reduce_value(started == 4 && group.size() == 3 ? 1 : 0);
                    if (all == 3 || group.all_reduce_value(is_late ? 1 : 0) > 0) return;
                    ++count;
                } catch (const dptk::MembershipChanged&) {
                    dptk::reform(group, exchange);
                }
            }
        },
        {.timeout = 20s, .elastic = true, .max_restarts = 1});
    CHECK(started == 4);
    CHECK(std::chrono::steady_clock::now() < end);
    CHECK(has_line(log,
                   "a thread of an elastic job has ended: in the middle; starting another one (restart "
                   "1 of 1)"));
}

TEST_CASE("a job whose threads have all thrown throws the first exception") {
    const RecordedLog log;
    CHECK_THROWS_WITH_AS(dptk::launch_threads(3,
                                              [](dptk::ProcessGroup& group) {
                                                  dptk::reform(group, [] {});
                                                  while (true) {
                                                      try {
                                                          group.barrier();
                                                          throw Fault("all");
                                                      } catch (const dptk::MembershipChanged&) {
                                                          dptk::reform(group, [] {});
                                                      }
                                                  }
                                              },
                                              {.timeout = 20s, .elastic = true}),
                         "all", Fault);
    CHECK_THROWS_AS(dptk::launch_threads(0, [](dptk::ProcessGroup&) {}, {.elastic = true}),
                    dptk::ArgumentError);
}

TEST_CASE("a thread that ends before its first step, or hangs, does not keep the others from going on") {
    const RecordedLog log;
    std::atomic<int> size = 0;
    dptk::launch_threads(3,
                         [&](dptk::ProcessGroup& group) {
                             static std::atomic<int> started = 0;
                             if (++started == 2) throw Fault("while it reads its data");
                             dptk::reform(group, [] {});
                             size = group.size();
                         },
                         {.timeout = 20s, .elastic = true});
    CHECK(size == 2);
    dptk::launch_threads(2,
                         [&](dptk::ProcessGroup& group) {
                             static std::atomic<int> started = 0;
                             if (++started == 2) std::this_thread::sleep_for(600ms);
                             dptk::reform(group, [] {});
                             size = group.size();
                         },
                         {.timeout = 200ms, .elastic = true});
    CHECK(size == 1);
    CHECK(has_line(log, "launch_threads: a rank has waited for 200 ms for the others to call reform()"));
}

TEST_CASE("ranks that form their group again and again without completing a step throw why") {
    const RecordedLog log;
    std::string error;
    try {
        dptk::launch_threads(
            2,
            [&](dptk::ProcessGroup& group) {
                elastic::Model model;
                dptk::DistributedDataParallel ddp(group, model.values, model.gradients);
                dptk::ElasticState state(group, ddp);
                state.run([] { return false; },
                          [&] {
                              if (group.rank() == 1)
                                  group.engine().control()->job_state()->fail("rank 1 always fails");
                              group.barrier();
                          });
            },
            {.timeout = 20s, .elastic = true});
    } catch (const dptk::Error& thrown) {
        error = thrown.what();
    }
    CHECK(
        error.find("ElasticState: the same ranks have formed their group 5 times without completing a step, "
                   "the last time because: rank 1 always fails") != std::string::npos);
}
