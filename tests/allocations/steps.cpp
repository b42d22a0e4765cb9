// Tests that steps after the second one, and calls in a loop, allocate no heap memory.
#include <doctest/doctest.h>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/adam.hpp>

#include <cstddef>
#include <vector>

#include "allocations/counter.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::DistributedDataParallel;
using dptk::DistributedDataParallelOptions;
using dptk::ProcessGroup;
using dptk::Ready;

/// The parameters of a model whose gradients fill several buckets.
struct Model {
    explicit Model(std::size_t parameters = 20)
        : values(parameters, std::vector<float>(1000, 1.0F)),
          gradients(parameters, std::vector<float>(1000, 0.5F)) {}

    std::vector<std::vector<float>> values;
    std::vector<std::vector<float>> gradients;
};

/// A model whose layers are marked as a whole, with names that no std::string holds without an allocation.
struct LayeredModel {
    struct Layer {
        void for_each_parameter(auto& sink) {
            sink("the weight of this layer", weight, weight_gradient);
            sink(dptk::ParameterRef{.name = "bias",
                                    .shape = {},
                                    .count = bias.size(),
                                    .value = bias.data(),
                                    .gradient = bias_gradient.data()});
        }

        std::vector<float> weight = std::vector<float>(100), weight_gradient = weight;
        std::vector<float> bias = std::vector<float>(10), bias_gradient = bias;
    };

    void for_each_parameter(auto& sink) {
        for (Layer& layer : layers) sink("a layer with a long name", layer);
    }

    std::vector<Layer> layers = std::vector<Layer>(5);
};

/// Requires that `step` allocates nothing, except in its first two calls.
template <class Step>
void check_no_allocations(ProcessGroup& group, Step&& step) {
    if (test::allocates_for_started_calls(group)) return;
    step();
    step();
    const std::size_t count = test::allocations_on_ranks(group, [&] {
        step();
        step();
    });
    CHECK(count == 0);
    if (count != 0 && group.rank() == 0) test::print_allocations();
}

DistributedDataParallelOptions several_buckets(Ready ready) {
    return {.bucket_cap_mb = 0.02, .first_bucket_mb = 0.01, .ready = ready};
}

}  // namespace

TEST_CASE("heap allocations are counted") {
    CHECK(test::allocations([] { ::operator delete(::operator new(1)); }) == 1);
}

TEST_CASE("a step of DistributedDataParallel allocates nothing") {
    test::on_ranks([](ProcessGroup& group) {
        Model model;
        DistributedDataParallel ddp(group, model.values, model.gradients,
                                    several_buckets(Ready::at_synchronize));
        check_no_allocations(group, [&] { ddp.synchronize(); });
        check_no_allocations(group, [&] { ddp.synchronize(8); });
        check_no_allocations(group, [&] {
            ddp.accumulate(3);
            ddp.synchronize(8);
            static_cast<void>(ddp.clip_grad_norm(1));
        });
    });
}

TEST_CASE("a step with marks allocates nothing") {
    test::on_ranks([](ProcessGroup& group) {
        Model model;
        DistributedDataParallel ddp(group, model.values, model.gradients, several_buckets(Ready::marked));
        check_no_allocations(group, [&] {
            ddp.begin_step();
            for (std::size_t i = model.values.size(); i-- > 0;) ddp.mark_ready(i);
            ddp.synchronize();
        });
        check_no_allocations(group, [&] {
            ddp.begin_step(8);
            for (std::size_t i = model.values.size(); i-- > 0;) ddp.mark_ready(model.gradients[i]);
            ddp.synchronize();
        });
    });
}

TEST_CASE("a step in which parts of a model are marked allocates nothing") {
    test::on_ranks([](ProcessGroup& group) {
        LayeredModel model;
        DistributedDataParallel ddp(group, model, several_buckets(Ready::marked));
        check_no_allocations(group, [&] {
            for (std::size_t i = model.layers.size(); i-- > 0;) ddp.mark_ready(model.layers[i]);
            ddp.synchronize();
        });
    });
}

TEST_CASE("a step after which gradients have moved allocates nothing") {
    test::on_ranks([](ProcessGroup& group) {
        Model model;
        std::vector<std::vector<float>> others = model.gradients;
        DistributedDataParallel ddp(group, model.values, model.gradients);
        check_no_allocations(group, [&] {
            ddp.synchronize();
            for (std::size_t i = 0; i < others.size(); ++i) model.gradients[i].swap(others[i]);
        });
    });
}

TEST_CASE("a step that sends a model's buffers allocates nothing") {
    test::on_ranks([](ProcessGroup& group) {
        Model model;
        std::vector<std::vector<double>> buffers(3, std::vector<double>(10));
        DistributedDataParallel ddp(group, model.values, model.gradients,
                                    {.buffers = dptk::BufferSource(buffers)});
        check_no_allocations(group, [&] { ddp.synchronize(); });
    });
}

TEST_CASE("a step of ShardedOptimizer allocates nothing") {
    test::on_ranks([](ProcessGroup& group) {
        for (const bool is_fused : {false, true}) {
            Model model;
            dptk::ShardedOptimizer sharded(
                group, model.values, model.gradients, dptk::AdamW<float>(),
                several_buckets(Ready::at_synchronize),
                {.fused_step = is_fused ? dptk::FusedStep::yes : dptk::FusedStep::no});
            check_no_allocations(group, [&] {
                sharded.synchronize(8);
                static_cast<void>(sharded.clip_grad_norm(1));
                sharded.step();
            });
        }
    });
}

TEST_CASE("collectives allocate nothing") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<float> values(1000);
        check_no_allocations(group, [&] { group.all_reduce(values); });
        check_no_allocations(group, [&] { group.broadcast(values, 0); });
        check_no_allocations(group, [&] { group.all_reduce_async(values).wait(); });
    });
}
