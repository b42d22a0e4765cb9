// Allocations that fail while ranks of an elastic job exchange their state: whatever a rank was doing when it
// ended, the others have the right values.
#include <doctest/doctest.h>
#include <dptk/comm/thread.hpp>
#include <dptk/ddp.hpp>
#include <dptk/ddp/elastic_state.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "allocations/counter.hpp"
#include "support/recorded_log.hpp"

namespace {

using namespace std::chrono_literals;

/// The place in a step in which rank 3 is lost, and which rank 0 alone gets beyond.
enum class Place { before_the_step, after_the_step };

struct Outcome {
    int right = 0;  // ranks
    int wrong = 0;
    bool has_failed = false;  // an allocation
};

/// Averages gradients, and makes the optimizer's steps.
struct Replicated {
    Replicated(dptk::ProcessGroup& group, std::vector<float>& values, std::vector<float>& gradients)
        : ddp(group, values, gradients) {}
    [[nodiscard]] dptk::ElasticState elastic_state(dptk::ProcessGroup& group, int& steps) {
        return {group, ddp, sgd, steps};
    }
    void synchronize() { ddp.synchronize(); }
    void step() { sgd.step(ddp.parameters()); }

    dptk::SGD<float> sgd{{.lr = 1, .momentum = 0.5}};
    dptk::DistributedDataParallel ddp;
};

struct Sharded {
    Sharded(dptk::ProcessGroup& group, std::vector<float>& values, std::vector<float>& gradients)
        : sharded(group, values, gradients, dptk::SGD<float>({.lr = 1, .momentum = 0.5})) {}
    [[nodiscard]] dptk::ElasticState elastic_state(dptk::ProcessGroup& group, int& steps) {
        return {group, sharded, steps};
    }
    void synchronize() { sharded.synchronize(); }
    void step() { sharded.step(); }

    dptk::ShardedOptimizer<dptk::SGD<float>> sharded;
};

/// Four ranks make four steps. Rank 3 is lost in the third one, and rank `victim` when its allocation `n` of
/// the change that follows fails.
template <class Steps>
Outcome train_with_failure(Place place, int victim, long n) {
    std::atomic<int> right = 0, wrong = 0;
    std::atomic<bool> has_failed = false;
    const auto train = [&](dptk::ProcessGroup& group) {
        std::vector<float> values(256), gradients(256, -1);
        Steps training(group, values, gradients);
        int steps = 0;
        dptk::ElasticState state = training.elastic_state(group, steps);
        state.restore();
        bool is_victim = group.rank() == victim, is_first_time = true;
        const auto lose_rank_3 = [&](Place here) {
            if (steps != (here == Place::before_the_step ? 2 : 3) || here != place || group.size() != 4)
                return;
            if (!std::exchange(is_first_time, false)) return;
            if (group.rank() == 3) {
                std::this_thread::sleep_for(20ms);
                throw std::runtime_error("rank 3");
            }
            if (group.rank() != 0) group.barrier();
        };
        while (steps < 4) {
            try {
                training.synchronize();
                lose_rank_3(Place::before_the_step);
                training.step();
                ++steps;
                lose_rank_3(Place::after_the_step);
                state.commit();
            } catch (const dptk::MembershipChanged&) {
                if (std::exchange(is_victim, false)) test::fail_allocation_of_this_thread(n);
                try {
                    state.restore();
                } catch (const std::bad_alloc&) {
                    has_failed = true;
                    throw;
                }
                test::fail_allocation_of_this_thread(0);
            }
        }
        group.barrier();
        ++(values == std::vector<float>(256, 6.125F) ? right : wrong);
    };
    const RecordedLog log;
    try {
        dptk::launch_threads(4, train, {.timeout = 20s, .elastic = true});
    } catch (
        const std::exception&) {  // a state was lost with two ranks, or all ranks were told of the failure
    }
    return {right, wrong, has_failed};
}

template <class Steps>
void check_training_with_failures(Place place) {
    const char* const given = std::getenv("DPTK_TEST_SEEDS");
    const long every = given == nullptr ? 9 : 1;
    int continued = 0;
    for (const int victim : {0, 1}) {
        for (long n = 1; n < 250; n += every) {
            CAPTURE(victim);
            CAPTURE(n);
            const Outcome outcome = train_with_failure<Steps>(place, victim, n);
            CHECK(outcome.wrong == 0);
            if (outcome.has_failed && outcome.right == 2) ++continued;
        }
    }
    CHECK(continued > 5);
}

}  // namespace

TEST_CASE("the other ranks have the right values if a rank ends while it exchanges its state") {
    check_training_with_failures<Replicated>(Place::before_the_step);
}

TEST_CASE("the other ranks have the right values if a rank ends while it exchanges a sharded state") {
    check_training_with_failures<Sharded>(Place::before_the_step);
    check_training_with_failures<Sharded>(Place::after_the_step);
}
