// Values and gradients that a program moves between calls: each call uses the addresses of that moment.
#include <doctest/doctest.h>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;
using DoubleVectors = std::vector<std::vector<double>>;

/// Replaces the memory of `elements`, and overwrites the previous memory, which stays allocated in `before`.
void move_elsewhere(std::vector<double>& elements, DoubleVectors& before) {
    std::vector<double> copy = elements;
    std::swap(elements, copy);
    std::ranges::fill(copy, -1000);
    before.push_back(std::move(copy));
}

}  // namespace

TEST_CASE("broadcast_values sends and receives values at their current addresses") {
    test::on_ranks([](ProcessGroup& group) {
        DoubleVectors values = {{0, 0}, {0}}, gradients = values, before;
        std::vector<double> statistics = {0};
        dptk::DistributedDataParallel ddp(group, values, gradients,
                                          {.buffers = dptk::BufferSource(std::tie(statistics))});
        ddp.synchronize();
        for (auto& value : values) {
            move_elsewhere(value, before);
            std::ranges::fill(value, group.rank() + 1);  // loaded from a file, for example
        }
        move_elsewhere(statistics, before);
        statistics[0] = group.rank() + 1;
        const int root = group.size() - 1;
        ddp.broadcast_values(root);
        CHECK(values == DoubleVectors{{1.0 + root, 1.0 + root}, {1.0 + root}});
        CHECK(statistics[0] == 1 + root);
        for (const auto& memory : before) CHECK(memory[0] == -1000);
    });
}

TEST_CASE("broadcast_values throws on all ranks if one rank's parameters have changed") {
    test::on_ranks([](ProcessGroup& group) {
        DoubleVectors values = {{1, 2}}, gradients = values;
        dptk::DistributedDataParallel ddp(group, values, gradients);
        if (group.rank() == group.size() - 1) values[0].resize(3), gradients[0].resize(3);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.broadcast_values(0); }, test::Agreed::yes));
        CHECK_MESSAGE(test::contains(text, "parameter [0] was 2 x f64"), text);
        values[0].resize(2), gradients[0].resize(2);
        CHECK_NOTHROW(ddp.broadcast_values(0));
        ddp.begin_step();
        CHECK_THROWS_AS(ddp.broadcast_values(0), dptk::ArgumentError);
        ddp.synchronize();
    });
}

TEST_CASE("gradients may move between synchronize and the calls that change averages") {
    test::on_ranks([](ProcessGroup& group) {
        DoubleVectors values = {{0, 0}}, gradients = values, before;
        dptk::DistributedDataParallel ddp(group, values, gradients);
        const auto step = [&] {
            std::ranges::fill(gradients[0], 3);
            ddp.synchronize();
            move_elsewhere(gradients[0], before);
        };
        step();
        CHECK(ddp.clip_grad_norm(1).value() == doctest::Approx(std::sqrt(18.0)));
        CHECK(gradients[0][1] == doctest::Approx(3 / std::sqrt(18.0)));
        step();
        ddp.clip_grad_value(2);
        CHECK(gradients[0][1] == 2);
        step();
        CHECK(ddp.unscale(2));
        CHECK(gradients[0][1] == 1.5);
        for (const auto& memory : before) CHECK(memory[1] == -1000);

        if (group.rank() == group.size() - 1) gradients[0].resize(3), values[0].resize(3);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { static_cast<void>(ddp.unscale(2)); }, test::Agreed::yes));
        CHECK_MESSAGE(test::contains(text, "parameter [0] was 2 x f64"), text);
    });
}

TEST_CASE("a sharded optimizer steps and broadcasts values at their current addresses") {
    test::on_ranks([](ProcessGroup& group) {
        for (const bool fused : {false, true}) {
            for (const bool view : {false, true}) {
                DoubleVectors values = {std::vector<double>(100, 1)}, gradients = values, before;
                dptk::ShardedOptimizer sharded(
                    group, values, gradients, dptk::SGD<double>({.lr = 0.5}), {},
                    {.fused_step = fused ? dptk::FusedStep::yes : dptk::FusedStep::no,
                     .parameters_as_bucket_view = view});
                sharded.synchronize();
                move_elsewhere(values[0], before);
                sharded.step();
                CHECK(values[0] == std::vector<double>(100, 0.5));
                move_elsewhere(values[0], before);
                std::ranges::fill(values[0], group.rank() + 7);
                sharded.broadcast_values(0);
                CHECK(values[0] == std::vector<double>(100, 7));
                if (view) CHECK(sharded.value_memory(0)[99] == 7);
                for (const auto& memory : before) CHECK(memory[50] == -1000);
            }
        }
    });
}
