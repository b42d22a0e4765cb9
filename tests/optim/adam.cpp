#include "dptk/optim/adam.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../nn/support.hpp"

using dptk::nn::testing::pattern_values;

namespace {

static_assert(dptk::Optimizer<dptk::Adam<float>> && dptk::Optimizer<dptk::AdamW<double>>);

/// Compares ten steps with those that PyTorch recorded.
template <class O>
void check_steps(const std::string& name, O optimizer, double tolerance) {
    CAPTURE(name);
    using T = typename O::Scalar;
    std::vector<T> value = pattern_values<T>(1, 12);
    for (std::uint32_t step = 0; step < 10; ++step) {
        optimizer.step(0, value, pattern_values<T>(10 + step, 12));
        CHECK(dptk::nn::testing::difference(
                  value, dptk::nn::testing::torch_output(name + "/step" + std::to_string(step + 1))) <
              tolerance);
    }
}

template <class T>
void check_all(const std::string& suffix, double tolerance) {
    check_steps("adam_" + suffix, dptk::Adam<T>({.lr = 0.1}), tolerance);
    check_steps("adam_decay_" + suffix,
                dptk::Adam<T>({.lr = 0.1, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1}), tolerance);
    check_steps("adamw_" + suffix, dptk::AdamW<T>({.lr = 0.1, .weight_decay = 0.01}), tolerance);
}

}  // namespace

TEST_CASE("Adam and AdamW take the steps that PyTorch takes, in float") {
    check_all<float>("f32", 2e-6);
}

TEST_CASE("Adam and AdamW take the steps that PyTorch takes, in double") {
    check_all<double>("f64", 1e-14);
}

TEST_CASE("Adam continues from a state that was saved") {
    dptk::Adam<float> first({.lr = 0.1});
    std::vector<float> value = pattern_values<float>(1, 5);
    first.step(2, value, pattern_values<float>(2, 5));
    dptk::Adam<float> second({.lr = 0.1});
    second.set_state(2, first.state(2));
    CHECK(second.state(2).steps == 1);
    std::vector<float> same = value;
    first.step(2, value, pattern_values<float>(3, 5));
    second.step(2, same, pattern_values<float>(3, 5));
    CHECK(same == value);
}

TEST_CASE("Adam refuses sizes that do not match and options that make no sense") {
    dptk::Adam<float> adam;
    std::vector<float> value(3);
    CHECK_THROWS_WITH_AS(adam.step(0, value, std::vector<float>(2)),
                         "Adam: slot 0 has 3 values but 2 gradient elements", dptk::ArgumentError);
    CHECK_THROWS_AS(adam.set_lr(-1), dptk::ArgumentError);
    CHECK_THROWS_AS(dptk::Adam<float>({.beta1 = 1}), dptk::ArgumentError);
    CHECK_THROWS_AS(dptk::AdamW<float>({.eps = -1}), dptk::ArgumentError);
}
