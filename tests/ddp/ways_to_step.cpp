// Compares the ways to step values: after DistributedDataParallel, and by a ShardedOptimizer with separate
// and with fused steps. All values must have the same bits.
#include <doctest/doctest.h>
#include <dptk/ddp/distributed_data_parallel.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/adam.hpp>
#include <dptk/optim/sgd.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "support/ranks_on_hosts.hpp"

namespace {

using dptk::ProcessGroup;

/// Parameters of several buckets and pieces, of which one is tied to another.
template <class T>
struct Model {
    std::vector<std::vector<T>> values, gradients;

    Model() {
        for (const std::size_t count : {std::size_t{20'001}, std::size_t{3}, std::size_t{5'000}}) {
            values.emplace_back(count, T{1});
            gradients.emplace_back(count);
        }
    }

    void for_each_parameter(dptk::ParameterSink& sink) {
        for (std::size_t i = 0; i < values.size(); ++i) sink(std::to_string(i), values[i], gradients[i]);
        sink("tied", values[0], gradients[0]);
    }

    void backward(std::uint32_t seed) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            for (std::size_t k = 0; k < values[i].size(); ++k) {
                seed = seed * 1664525U + 1013904223U;
                gradients[i][k] = values[i][k] * T{0.1F} + static_cast<T>(seed) / T{4294967296.0F};
            }
        }
    }
};

/// The numbers of samples of a step, for each rank: none are counted, equal ones, uneven ones, of which rank
/// 0 has none.
std::optional<std::size_t> samples_of(int rank, int step) {
    if (step % 3 == 0) return std::nullopt;
    return step % 3 == 1 ? std::size_t{5} : static_cast<std::size_t>(rank);
}

template <class Steps, class T>
void synchronize(Steps& steps, Model<T>& model, int rank, int step) {
    model.backward(static_cast<std::uint32_t>(1000 * rank + step));
    const std::optional<std::size_t> samples = samples_of(rank, step);
    if (samples) {
        steps.synchronize(*samples);
    } else {
        steps.synchronize();
    }
}

template <class O>
void set_groups(O& optimizer) {
    optimizer.set_group(std::vector<std::size_t>{1}, {.is_frozen = true});
    optimizer.set_group(std::vector<std::size_t>{2}, {.lr_factor = 3, .weight_decay = 0.1});
}

template <class O>
void compare(ProcessGroup& group, O optimizer, int steps) {
    using T = typename O::Scalar;
    const dptk::DistributedDataParallelOptions buckets{.bucket_cap_mb = 0.03};
    Model<T> plain;
    {
        dptk::DistributedDataParallel ddp(group, plain, buckets);
        O own = optimizer;
        set_groups(own);
        for (int step = 0; step < steps; ++step) {
            synchronize(ddp, plain, group.rank(), step);
            own.step(ddp.parameters());
        }
    }
    for (const dptk::FusedStep fused_step : {dptk::FusedStep::no, dptk::FusedStep::yes}) {
        for (const bool has_view : {false, true}) {
            CAPTURE(static_cast<int>(fused_step));
            CAPTURE(has_view);
            Model<T> model;
            dptk::ShardedOptimizer sharded(group, model, optimizer, buckets,
                                           {.fused_step = fused_step, .parameters_as_bucket_view = has_view});
            set_groups(sharded);
            for (int step = 0; step < steps; ++step) {
                synchronize(sharded, model, group.rank(), step);
                sharded.step();
            }
            CHECK(model.values == plain.values);
            CHECK(model.values[0][20'000] != 1);
        }
    }
}

void compare_all(ProcessGroup& group, int steps) {
    compare(group, dptk::SGD<float>({.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-3}), steps);
    compare(group, dptk::SGD<float>({.lr = 0.01, .momentum = 0.9, .nesterov = true}), steps);
    compare(group, dptk::AdamW<float>({.lr = 0.01}), steps);
    compare(group, dptk::AdamW<double>({.lr = 0.01}), steps / 10);
}

}  // namespace

TEST_CASE("plain, separate and fused steps compute the same bits") {
    test::on_ranks([](ProcessGroup& group) { compare_all(group, test::is_launched() ? 200 : 20); });
    if (test::is_launched()) return;
    test::launch_on_hosts({"a", "a", "a"}, [](ProcessGroup& group) { compare_all(group, 20); });
    test::launch_on_hosts({"a", "a", "b", "b"}, [](ProcessGroup& group) { compare_all(group, 20); });
}
