// cancel_step() ends a step after an exception in backward, on one rank or on all.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"
#include "support/ranks_on_hosts.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::Ready;
using DoubleVectors = std::vector<std::vector<double>>;

/// How far the rank gets that cancels.
enum class Reached { nothing, begin, first_mark, all_marks };

/// Runs one step, in which the ranks for which `cancels` is true cancel at `reached`.
template <class Trainee>
void step_until(Trainee& ddp, Ready ready, bool counts, bool cancels, Reached reached) {
    const auto must_stop = [&](Reached here) { return cancels && reached <= here; };
    if (must_stop(Reached::nothing)) return ddp.cancel_step();
    if (counts) {
        ddp.begin_step(1);
    } else {
        ddp.begin_step();
    }
    if (must_stop(Reached::begin)) return ddp.cancel_step();
    for (const std::size_t i : {2U, 1U, 0U}) {
        if (ready == Ready::marked) ddp.mark_ready(i);
        if (must_stop(Reached::first_mark)) return ddp.cancel_step();
    }
    if (must_stop(Reached::all_marks)) return ddp.cancel_step();
    ddp.synchronize();
}

void check_canceled(ProcessGroup& group, const std::function<bool(int)>& cancels) {
    for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
        for (const bool counts : {false, true}) {
            for (const Reached reached :
                 {Reached::nothing, Reached::begin, Reached::first_mark, Reached::all_marks}) {
                DoubleVectors values = {{0, 0}, {0}, {0, 0, 0}}, gradients = values;
                dptk::DistributedDataParallel ddp(group, values, gradients,
                                                  {.bucket_cap_mb = test::one_byte, .ready = ready});
                for (int round = 0; round < 2; ++round) {
                    const bool own = cancels(group.rank());
                    std::string text;
                    if (own) {
                        CHECK_NOTHROW(step_until(ddp, ready, counts, true, reached));
                    } else {
                        CHECK(test::throws<dptk::ArgumentError>(
                            text, [&] { step_until(ddp, ready, counts, false, reached); },
                            test::Agreed::yes));
                        CHECK_MESSAGE(test::contains(text, "rank 0: canceled the step"), text);
                    }
                    for (auto& gradient : gradients) std::ranges::fill(gradient, group.rank());
                    step_until(ddp, ready, counts, false, reached);
                    CHECK(gradients[2][2] == doctest::Approx((group.size() - 1) / 2.0));
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("a step that one rank cancels is an error on the others, and the next step works") {
    test::on_ranks([](ProcessGroup& group) { check_canceled(group, [](int rank) { return rank == 0; }); });
}

TEST_CASE("a step that all ranks cancel is no error") {
    test::on_ranks([](ProcessGroup& group) { check_canceled(group, [](int) { return true; }); });
}

TEST_CASE("a canceled step discards accumulated micro-batches") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<double> value = {0}, gradient = {5};
        dptk::DistributedDataParallel ddp(group, value, gradient);
        ddp.accumulate(3);
        ddp.cancel_step();
        gradient[0] = 1;
        ddp.synchronize(1);
        CHECK(gradient[0] == 1);
    });
}

TEST_CASE("a canceled step of a sharded optimizer") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<double> value(10, 1), gradient(10, 1);
        dptk::ShardedOptimizer sharded(group, value, gradient, dptk::SGD<double>({.lr = 0.5}));
        sharded.begin_step();
        sharded.cancel_step();
        CHECK_THROWS_AS(sharded.step(), dptk::ArgumentError);
        sharded.synchronize();
        sharded.step();
        CHECK(value[9] == 0.5);
    });
}

TEST_CASE("a step that one rank cancels after it has received buffers fails on the others, sharded or not") {
    const auto check = [](ProcessGroup& group) {
        for (const dptk::FusedStep fused_step : {dptk::FusedStep::no, dptk::FusedStep::yes}) {
            std::vector<float> value(100), gradient(100), mean(3);
            dptk::ShardedOptimizer sharded(group, value, gradient, dptk::SGD<float>({.lr = 1}),
                                           {.buffers = dptk::BufferSource(std::tie(mean))},
                                           {.fused_step = fused_step});
            sharded.begin_step(1);
            std::string text;
            if (group.rank() == 0) {
                CHECK_NOTHROW(sharded.cancel_step());
            } else {
                CHECK(test::throws<dptk::ArgumentError>(
                    text, [&] { sharded.synchronize(); }, test::Agreed::yes));
                CHECK(test::contains(text, "rank 0: canceled the step"));
            }
            sharded.synchronize(1);
            sharded.step();
        }
    };
    test::on_ranks(check);
    test::launch_on_hosts({"a", "a", "a"}, check);
}
