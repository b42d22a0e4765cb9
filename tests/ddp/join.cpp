// Join: uneven inputs, ranks with different numbers of batches.
#include <doctest/doctest.h>
#include <dptk/ddp/join.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"
#include "support/ranks_on_hosts.hpp"

namespace {

using dptk::DistributedDataParallel;
using dptk::Join;
using dptk::ProcessGroup;
using dptk::Ready;

/// Returns the number of batches of a rank: 3 if it is even, 5 if it is odd, and 5 for a single process.
int steps_of(int rank, int ranks) {
    return ranks == 1 || rank % 2 == 1 ? 5 : 3;
}

std::vector<std::size_t> joined_batch(int rank, int step) {
    return {static_cast<std::size_t>(10 * rank + step), static_cast<std::size_t>(1000 + 10 * rank + step)};
}

/// Computes in one process the gradients over the batches of all ranks that have one in this step. Returns
/// the fraction of ranks that have a batch.
double joined_gradients_alone(test::SmallNet<double>& net, int ranks, int step) {
    std::vector<std::size_t> all;
    int present = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        if (step >= steps_of(rank, ranks)) continue;
        const auto samples = joined_batch(rank, step);
        all.insert(all.end(), samples.begin(), samples.end());
        ++present;
    }
    net.forward_backward(all);
    return static_cast<double>(present) / ranks;
}

/// Steps with these gradients. The ranks' sum is divided by the number of all ranks if `by_all`, otherwise by
/// the number of ranks that have a batch.
void joined_step_alone(test::SmallNet<double>& net, int ranks, int step, bool by_all) {
    const double part = joined_gradients_alone(net, ranks, step);
    net.step(0.1 * (by_all ? part : 1));
}

}  // namespace

TEST_CASE("three and five batches: both ways to divide, and sample counts, equal one process") {
    test::on_ranks([](ProcessGroup& group) {
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            for (const bool by_all : {true, false}) {
                for (const bool with_samples : {true, false}) {
                    test::SmallNet<double> net(group.rank()), alone(0);
                    DistributedDataParallel ddp(group, net.values, net.gradients,
                                                {.bucket_cap_mb = 1e-5, .ready = ready});
                    Join join(group, {.divide_by_initial_world_size = by_all});
                    join.add(ddp);
                    int own_collectives = 0;
                    int last_rank = -1;
                    join.add([&] { own_collectives += group.all_reduce_value(0); },
                             [&](int last) { last_rank = last; });
                    for (int step = 0; step < steps_of(group.rank(), group.size()); ++step) {
                        join.begin_step();
                        const auto samples = joined_batch(group.rank(), step);
                        if (with_samples) ddp.begin_step(samples.size());
                        net.forward_backward(samples);
                        if (ready == Ready::marked) {
                            for (std::size_t i = 4; i-- > 0;) ddp.mark_ready(i);
                        }
                        ddp.synchronize();
                        net.step(0.1);
                        own_collectives += group.all_reduce_value(1);
                    }
                    join.finish();
                    int steps_of_all = 0;
                    for (int rank = 0; rank < group.size(); ++rank)
                        steps_of_all += steps_of(rank, group.size());
                    CHECK(own_collectives == steps_of_all);
                    CHECK(last_rank == (group.size() == 1 ? 0 : 1));
                    for (int step = 0; step < 5; ++step)
                        joined_step_alone(alone, group.size(), step, by_all && !with_samples);
                    CHECK(test::largest_difference(net.values, alone.values) < 1e-10);
                }
            }
        }
    });
}

TEST_CASE("buffers come from a rank that still has batches") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<double> value(3), gradient(3), mean(2);
        DistributedDataParallel ddp(group, value, gradient, {.buffers = dptk::BufferSource(std::tie(mean))});
        Join join(group);
        join.add(ddp);
        for (int step = 0; step < steps_of(group.rank(), group.size()); ++step) {
            join.begin_step();
            mean[0] = 100 * group.rank() + step;
            ddp.begin_step();
            CHECK(mean[0] == (step < 3 ? step : 100 * (group.size() > 1 ? 1 : 0) + step));
            ddp.synchronize();
        }
        join.finish();
        CHECK(mean[0] == (group.size() > 1 ? 104 : 4));
    });
}

/// Trains with a sharded optimizer, which clips between synchronize() and step().
void check_sharded_join(ProcessGroup& group, bool by_all, bool with_samples, bool fused) {
    test::SmallNet<double> net(group.rank()), alone(0);
    dptk::SGD<double> sgd({.lr = 0.1, .momentum = 0.9});
    dptk::ShardedOptimizer sharded(group, net.values, net.gradients, sgd, {},
                                   {.fused_step = fused ? dptk::FusedStep::yes : dptk::FusedStep::no});
    const auto clip = [&] { static_cast<void>(sharded.clip_grad_norm(0.3)); };
    Join join(group, {.divide_by_initial_world_size = by_all});
    join.add(sharded, clip);
    for (int step = 0; step < steps_of(group.rank(), group.size()); ++step) {
        join.begin_step();
        const auto samples = joined_batch(group.rank(), step);
        net.forward_backward(samples);
        if (with_samples) {
            sharded.synchronize(samples.size());
        } else {
            sharded.synchronize();
        }
        clip();
        sharded.step();
    }
    join.finish();
    for (int step = 0; step < 5; ++step) {
        const double factor = joined_gradients_alone(alone, group.size(), step);
        double square = 0;
        for (auto& gradient : alone.gradients) {
            for (double& element : gradient) {
                if (by_all && !with_samples) element *= factor;
                square += element * element;
            }
        }
        const double clipped = std::min(1.0, 0.3 / (std::sqrt(square) + 1e-6));
        for (auto& gradient : alone.gradients) {
            for (double& element : gradient) element *= clipped;
        }
        for (std::size_t i = 0; i < 4; ++i) sgd.step(i, std::span(alone.values[i]), alone.gradients[i]);
    }
    CHECK(test::largest_difference(net.values, alone.values) < 1e-9);
}

TEST_CASE("a sharded optimizer joins: both ways to divide, sample counts, and clipping between") {
    const auto check = [](ProcessGroup& group) {
        for (const bool by_all : {true, false}) {
            for (const bool with_samples : {true, false}) {
                for (const bool fused : {true, false}) check_sharded_join(group, by_all, with_samples, fused);
            }
        }
    };
    test::on_ranks(check);
    test::launch_on_hosts({"a", "a", "a"}, check);
}

TEST_CASE("JoinOptions that differ between ranks are an error on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        std::string text;
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { Join(group, {.divide_by_initial_world_size = group.rank() == 0}); },
            test::Agreed::yes));
        CHECK(test::contains(text, "JoinOptions differ: rank 1 has divide_by_initial_world_size"));
    });
}

TEST_CASE("throw_on_early_termination: all ranks throw in the step in which one has run out") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        std::vector<float> value(3), gradient(3);
        DistributedDataParallel ddp(group, value, gradient);
        std::vector<float> sharded_value(3), sharded_gradient(3);
        dptk::ShardedOptimizer sharded(group, sharded_value, sharded_gradient, dptk::SGD<float>({.lr = 1}));
        Join join(group, {.throw_on_early_termination = true});
        join.add(ddp);
        join.add(sharded);
        int steps = 0;
        std::string text;
        CHECK(test::throws<dptk::Error>(
            text,
            [&] {
                for (int step = 0; step < steps_of(group.rank(), group.size()); ++step) {
                    join.begin_step();
                    ddp.synchronize();
                    sharded.synchronize();
                    sharded.step();
                    ++steps;
                }
                join.finish();
            },
            test::Agreed::yes));
        CHECK(steps == 3);
        CHECK(text == "rank 0 has run out of batches after 3 steps, but other ranks have not");
        CHECK(group.all_reduce_value(1) == group.size());
    });
}
