#include "dptk/optim/sgd.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "../nn/support.hpp"

using dptk::SGD;
using dptk::nn::testing::pattern_values;

namespace {

/// Compares ten steps with those that PyTorch recorded.
template <class T>
void check_steps(const std::string& name, dptk::SGDOptions options, double tolerance) {
    CAPTURE(name);
    SGD<T> sgd(options);
    std::vector<T> value = pattern_values<T>(1, 12);
    for (std::uint32_t step = 0; step < 10; ++step) {
        const std::vector<T> gradient = pattern_values<T>(10 + step, 12);
        sgd.step(0, value, gradient);
        CHECK(dptk::nn::testing::difference(
                  value, dptk::nn::testing::torch_output(name + "/step" + std::to_string(step + 1))) <
              tolerance);
    }
}

template <class T>
void check_all(const std::string& suffix, double tolerance) {
    check_steps<T>("sgd_plain_" + suffix, {.lr = 0.1}, tolerance);
    check_steps<T>("sgd_decay_" + suffix, {.lr = 0.1, .weight_decay = 0.01}, tolerance);
    check_steps<T>("sgd_momentum_" + suffix, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}, tolerance);
}

}  // namespace

TEST_CASE("SGD takes the steps that PyTorch takes, in float") {
    check_all<float>("f32", 5e-7);
}

TEST_CASE("SGD takes the steps that PyTorch takes, in double") {
    check_all<double>("f64", 1e-15);
}

TEST_CASE("each slot of SGD has a momentum of its own") {
    SGD<double> sgd({.lr = 1, .momentum = 0.5});
    std::vector<double> a{0};
    std::vector<double> b{0};
    const std::vector<double> one{1};
    sgd.step(0, a, one);
    sgd.step(0, a, one);
    CHECK(a[0] == -2.5);
    sgd.step(7, b, one);
    CHECK(b[0] == -1);
}

TEST_CASE("SGD continues from momentum that was saved") {
    SGD<float> first({.lr = 0.1, .momentum = 0.9});
    CHECK(first.state(2).arrays.empty());
    std::vector<float> value = pattern_values<float>(1, 5);
    first.step(2, value, pattern_values<float>(2, 5));
    SGD<float> second({.lr = 0.1, .momentum = 0.9});
    second.set_state(2, first.state(2));
    std::vector<float> same = value;
    first.step(2, value, pattern_values<float>(3, 5));
    second.step(2, same, pattern_values<float>(3, 5));
    CHECK(same == value);
}

TEST_CASE("SGD's learning rate may change between steps") {
    SGD<double> sgd({.lr = 1});
    std::vector<double> value{0};
    const std::vector<double> one{1};
    sgd.step(0, value, one);
    sgd.set_lr(0.25);
    CHECK(sgd.lr() == 0.25);
    sgd.step(0, value, one);
    CHECK(value[0] == -1.25);
}

TEST_CASE("SGD refuses sizes that do not match and options that make no sense") {
    SGD<float> sgd({.lr = 0.1, .momentum = 0.9});
    std::vector<float> value(3);
    const std::vector<float> gradient(3);
    CHECK_THROWS_WITH_AS(sgd.step(0, value, std::span(gradient).first(2)),
                         "SGD: slot 0 has 3 values but 2 gradient elements", dptk::ArgumentError);
    sgd.step(0, value, gradient);
    CHECK_THROWS_WITH_AS(sgd.step(0, std::span(value).first(2), std::span(gradient).first(2)),
                         "SGD: expected 3 values in slot 0, as many as its state has, got 2",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(sgd.set_state(1, {.steps = 1, .arrays = {{1}, {2}}}),
                         "SGD: expected a state of 1 arrays for slot 1, got 2", dptk::ArgumentError);
    CHECK_THROWS_AS(SGD<float>({.lr = -0.1}), dptk::ArgumentError);
    CHECK_THROWS_AS(SGD<float>({.lr = 0.1, .momentum = -1}), dptk::ArgumentError);
    CHECK_THROWS_AS(SGD<float>({.lr = 0.1, .weight_decay = std::nan("")}), dptk::ArgumentError);
    CHECK_THROWS_AS(sgd.set_lr(std::numeric_limits<double>::infinity()), dptk::ArgumentError);
}
