// Parameter groups, schedules and averages, beside PyTorch.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/adam.hpp>
#include <dptk/optim/broadcast_optimizer_state.hpp>
#include <dptk/optim/ema.hpp>
#include <dptk/optim/schedule.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "../nn/support.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::ParameterRef;
using dptk::nn::testing::difference;
using dptk::nn::testing::pattern_values;
using dptk::nn::testing::torch_output;

template <class T>
ParameterRef parameter_of(const std::string& name, std::vector<T>& values, std::vector<T>& gradients) {
    return {.name = name,
            .shape = {values.size()},
            .dtype = dptk::dtype_of<T>,
            .count = values.size(),
            .value = values.data(),
            .gradient = gradients.data()};
}

/// The two parameters of the recorded cases.
struct Model {
    std::vector<double> values[2] = {pattern_values<double>(1, 12), pattern_values<double>(2, 5)};
    std::vector<double> gradients[2] = {std::vector<double>(12), std::vector<double>(5)};

    void for_each_parameter(auto&& visit) {
        for (std::size_t i = 0; i < 2; ++i)
            visit(parameter_of("p" + std::to_string(i), values[i], gradients[i]));
    }

    [[nodiscard]] std::vector<ParameterRef> parameters() {
        std::vector<ParameterRef> all;
        for_each_parameter([&](ParameterRef parameter) { all.push_back(std::move(parameter)); });
        return all;
    }

    void set_gradients(std::uint32_t step) {
        const auto first = pattern_values<double>(10 + step, 12),
                   second = pattern_values<double>(200 + step, 5);
        std::copy(first.begin(), first.end(), gradients[0].begin());
        std::copy(second.begin(), second.end(), gradients[1].begin());
    }

    [[nodiscard]] std::vector<double> all() const {
        std::vector<double> both = values[0];
        both.insert(both.end(), values[1].begin(), values[1].end());
        return both;
    }
};

constexpr std::size_t second[] = {1};
constexpr dptk::ParameterGroup half_rate{.lr_factor = 0.5, .weight_decay = 0};

/// Compares the values after 100 steps, and their averages, with PyTorch's.
template <class O>
void check_groups(const std::string& name, O optimizer) {
    CAPTURE(name);
    optimizer.set_group(second, half_rate);
    const dptk::MultiStepSchedule schedule({.milestones = {30, 70}});
    const double lr = optimizer.lr();
    dptk::EMA<double> averages({.decay = 0.9});
    Model model;
    for (std::uint32_t step = 0; step < 100; ++step) {
        optimizer.set_lr(lr * schedule(step));
        model.set_gradients(step);
        optimizer.step(model.parameters());
        averages.update(model.parameters());
    }
    CHECK(difference(model.all(), torch_output(name + "/values")) < 1e-13);
    const std::vector<double> last = model.all();
    averages.exchange(model.parameters());
    CHECK(difference(model.all(), torch_output(name + "/averages")) < 1e-13);
    averages.exchange(model.parameters());
    CHECK(model.all() == last);
}

template <class Schedule>
void check_schedule(const std::string& name, const Schedule& schedule) {
    std::vector<double> rates;
    for (int step = 0; step < 40; ++step) rates.push_back(schedule(step));
    CHECK(difference(rates, torch_output("schedule_" + name)) < 1e-14);
}

/// Trains with the sharded optimizer on several ranks, and compares with PyTorch's process.
template <class O>
void check_sharded(const std::string& name, const O& optimizer) {
    for (const bool fused : {false, true}) {
        for (const int ranks : {1, 2, 3}) {
            dptk::launch_threads(ranks, [&](dptk::ProcessGroup& group) {
                CAPTURE(name);
                Model model;
                dptk::ShardedOptimizer<O> sharded(
                    group, model, optimizer, {},
                    {.fused_step = fused ? dptk::FusedStep::yes : dptk::FusedStep::no});
                sharded.set_group(second, half_rate);
                const dptk::MultiStepSchedule schedule({.milestones = {30, 70}});
                const double lr = sharded.optimizer().lr();
                dptk::EMA<double> averages({.decay = 0.9});
                for (std::uint32_t step = 0; step < 100; ++step) {
                    sharded.optimizer().set_lr(lr * schedule(step));
                    model.set_gradients(step);
                    sharded.synchronize();
                    sharded.step();
                    averages.update(model.parameters());
                }
                CHECK(difference(model.all(), torch_output(name + "/values")) < 1e-12);
                averages.exchange(model.parameters());
                CHECK(difference(model.all(), torch_output(name + "/averages")) < 1e-12);
            });
        }
    }
}

const dptk::SGD<double> nesterov({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
const dptk::SGD<double> dampened({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .dampening = 0.3});
const dptk::Adam<double> adam({.lr = 0.01, .weight_decay = 0.1});
const dptk::AdamW<double> adamw({.lr = 0.01, .weight_decay = 0.1});

}  // namespace

TEST_CASE("groups, schedules and averages are PyTorch's after 100 steps") {
    check_groups("groups_sgd", nesterov);
    check_groups("groups_dampened", dampened);
    check_groups("groups_adam", adam);
    check_groups("groups_adamw", adamw);
}

TEST_CASE("slots of a frozen group keep their values, and have no state") {
    const auto check = [](auto optimizer) {
        optimizer.set_group(second, {.is_frozen = true});
        Model model;
        const Model before = model;
        model.set_gradients(0);
        optimizer.step(model.parameters());
        CHECK(model.values[0] != before.values[0]);
        CHECK(model.values[1] == before.values[1]);
        CHECK(optimizer.state(1).steps == 0);
        CHECK(optimizer.state(1).arrays.empty());
        optimizer.set_group(second, {});
        optimizer.step(model.parameters());
        CHECK(model.values[1] != before.values[1]);
        CHECK(optimizer.state(1).steps == 1);
    };
    check(nesterov);
    check(dptk::SGD<double>({.lr = 0.1, .weight_decay = 0.1}));
    check(adam);
    check(adamw);
}

TEST_CASE("a sharded optimizer has the same groups") {
    check_sharded("groups_sgd", nesterov);
    check_sharded("groups_dampened", dampened);
    check_sharded("groups_adamw", adamw);
}

TEST_CASE("every rate of a schedule is PyTorch's") {
    check_schedule("cosine", dptk::CosineSchedule({.total = 39, .final_factor = 0.05}));
    check_schedule("multi_step", dptk::MultiStepSchedule({.milestones = {7, 20, 21}, .gamma = 0.3}));
    check_schedule("linear", dptk::LinearSchedule({.total = 13, .first_factor = 0.25, .final_factor = 0.75}));
    check_schedule("warmup", dptk::CosineSchedule({.total = 40, .warmup = 6}));
    const dptk::ConstantSchedule constant({.warmup = 4});
    CHECK(constant(0) == 0.25);
    CHECK(constant(3) == 1);
    CHECK(constant(1000) == 1);
    CHECK(dptk::CosineSchedule({.total = 10, .final_factor = 0.5})(11) == 0.5);
}

TEST_CASE("all ranks get the optimizer's state of one rank") {
    for (const int root : {0, 2}) {
        dptk::launch_threads(3, [&](dptk::ProcessGroup& group) {
            dptk::AdamW<double> optimizer({.lr = 0.01 * (group.rank() + 1), .weight_decay = 0.1});
            Model model;
            for (std::uint32_t step = 0; group.rank() == root && step < 5; ++step) {
                model.set_gradients(step);
                optimizer.step(model.parameters());
            }
            dptk::broadcast_optimizer_state(group, optimizer, 2, root);
            CHECK(optimizer.lr() == doctest::Approx(0.01 * (root + 1)));
            CHECK(optimizer.state(0).steps == 5);
            CHECK(optimizer.state(1).arrays[1].size() == 5);
            for (std::size_t slot = 0; slot < 2; ++slot) {
                for (std::vector<double> array : optimizer.state(slot).arrays) {
                    std::vector<double> expected = array;
                    group.broadcast(expected, root);
                    CHECK(array == expected);
                }
            }
        });
    }
}

TEST_CASE("options that are not valid are errors") {
    using dptk::ArgumentError;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_AS(dptk::SGD<float>({.lr = 1, .nesterov = true}), ArgumentError);
    CHECK_THROWS_AS(dptk::SGD<float>({.lr = 1, .momentum = 0.9, .dampening = 0.1, .nesterov = true}),
                    ArgumentError);
    CHECK_THROWS_AS(dptk::SGD<float>({.lr = 1, .dampening = -1}), ArgumentError);
    dptk::SGD<float> sgd({.lr = 1});
    CHECK_THROWS_AS(sgd.set_group(second, {.lr_factor = nan}), ArgumentError);
    CHECK_THROWS_AS(sgd.set_group(second, {.weight_decay = -1}), ArgumentError);
    CHECK_THROWS_AS(dptk::CosineSchedule({.total = 0}), ArgumentError);
    CHECK_THROWS_AS(dptk::CosineSchedule({.total = nan}), ArgumentError);
    CHECK_THROWS_AS(dptk::LinearSchedule({.total = 1, .warmup = -1}), ArgumentError);
    CHECK_THROWS_AS(dptk::MultiStepSchedule({.milestones = {2, 1}}), ArgumentError);
    CHECK_THROWS_AS(dptk::ConstantSchedule({.warmup = nan}), ArgumentError);
    CHECK_THROWS_AS(dptk::EMA<float>({.decay = 1.5}), ArgumentError);
    Model model;
    dptk::EMA<double> averages;
    CHECK_THROWS_AS(averages.exchange(model.parameters()), ArgumentError);
    averages.update(model.parameters());
    model.values[0].resize(3);
    CHECK_THROWS_AS(averages.update(model.parameters()), ArgumentError);
    dptk::EMA<float> other;
    CHECK_THROWS_AS(other.update(model.parameters()), ArgumentError);
}

TEST_CASE("biases and the parameters of norms have no weight decay") {
    std::vector<float> weight(6), weight_gradient(6), bias(2), bias_gradient(2);
    std::vector<ParameterRef> parameters = {parameter_of("weight", weight, weight_gradient),
                                            parameter_of("bias", bias, bias_gradient)};
    parameters[0].shape = {2, 3};
    CHECK(dptk::parameters_without_decay(parameters) == std::vector<std::size_t>{1});
}
