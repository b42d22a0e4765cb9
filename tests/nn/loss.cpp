#include "dptk/nn/loss.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support.hpp"

using namespace dptk::nn;

namespace {

template <class T>
Tensor<T> logits_of(Shape shape, const std::vector<T>& values) {
    Tensor<T> tensor(std::move(shape));
    std::copy(values.begin(), values.end(), tensor.data());
    return tensor;
}

}  // namespace

TEST_CASE("equal logits cost the logarithm of the number of classes") {
    const Tensor<double> logits(Shape{2, 4});
    Tensor<double> gradient;
    const LossResult result = softmax_cross_entropy(logits, std::vector<int>{0, 3}, gradient);
    CHECK(result.loss == doctest::Approx(std::log(4.0)));
    CHECK(result.correct == 1);  // if logits are equal, the first one is the prediction
    CHECK(gradient.shape() == Shape{2, 4});
    CHECK(gradient[0] == doctest::Approx((0.25 - 1) / 2));
    CHECK(gradient[1] == doctest::Approx(0.25 / 2));
    CHECK(gradient[7] == doctest::Approx((0.25 - 1) / 2));
}

TEST_CASE("huge logits neither overflow nor lose the loss") {
    const auto logits = logits_of<float>({2, 3}, {1e4F, 0, -1e4F, -2e4F, -2e4F, -2e4F});
    Tensor<float> gradient;
    const LossResult result = softmax_cross_entropy(logits, std::vector<std::int64_t>{1, 2}, gradient);
    CHECK(result.loss == doctest::Approx((1e4 + std::log(3.0)) / 2));
    CHECK(result.correct == 0);
    CHECK(gradient[0] == doctest::Approx(0.5));
    CHECK(gradient[1] == doctest::Approx(-0.5));
    CHECK(gradient[2] == 0);
}

TEST_CASE("the gradient of the loss agrees with finite differences") {
    Tensor<double> logits = testing::pattern_tensor<double>(1, {5, 6}, 10);
    const std::array<std::uint8_t, 5> labels{0, 5, 2, 2, 4};
    Tensor<double> gradient;
    Tensor<double> unused;
    softmax_cross_entropy(logits, labels, gradient);
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const auto loss_at = [&] { return softmax_cross_entropy(logits, labels, unused).loss; };
        CHECK(std::abs(testing::finite_difference(logits[i], loss_at, 1e-5) - gradient[i]) < 1e-9);
    }
}

TEST_CASE("label smoothing and class weights are PyTorch's, and agree with finite differences") {
    const double weights[] = {0.5, 1, 2, 0, 3, 0.25};
    const std::array<std::uint8_t, 5> labels{0, 5, 2, 2, 4};
    const auto check = [&](const std::string& name, const CrossEntropyOptions& options) {
        CAPTURE(name);
        Tensor<double> logits = testing::pattern_tensor<double>(1, {5, 6}, 10);
        Tensor<double> gradient, unused;
        const double loss = softmax_cross_entropy(logits, labels, gradient, options).loss;
        CHECK(loss == doctest::Approx(testing::torch_output(name + "/loss")[0]).epsilon(1e-14));
        CHECK(testing::difference(gradient.values(), testing::torch_output(name + "/gradient")) < 1e-15);
        for (std::size_t i = 0; i < logits.size(); ++i) {
            const auto loss_at = [&] { return softmax_cross_entropy(logits, labels, unused, options).loss; };
            CHECK(std::abs(testing::finite_difference(logits[i], loss_at, 1e-5) - gradient[i]) < 1e-9);
        }
    };
    check("loss_smoothed", {.label_smoothing = 0.1});
    check("loss_weighted", {.weight = weights});
    check("loss_smoothed_weighted", {.label_smoothing = 0.3, .weight = weights});
    const Tensor<double> logits(Shape{1, 6});
    Tensor<double> gradient;
    const auto refuses = [&](const CrossEntropyOptions& options, int label = 1) {
        CHECK_THROWS_AS(softmax_cross_entropy(logits, std::vector<int>{label}, gradient, options),
                        dptk::ArgumentError);
    };
    refuses({.label_smoothing = 1});
    refuses({.label_smoothing = std::nan("")});
    refuses({.weight = std::span(weights).first(5)});
    refuses({.weight = weights}, 3);
    const double negative[] = {1, 1, -1, 1, 1, 1};
    refuses({.weight = negative});
}

TEST_CASE("the mean squared error is PyTorch's") {
    const Tensor<double> outputs = testing::pattern_tensor<double>(1, {3, 4}, 1);
    const Tensor<double> targets = testing::pattern_tensor<double>(2, {3, 4}, 1);
    Tensor<double> gradient;
    CHECK(mean_squared_error(outputs, targets, gradient) ==
          doctest::Approx(testing::torch_output("mse/loss")[0]).epsilon(1e-14));
    CHECK(gradient.shape() == Shape{3, 4});
    CHECK(testing::difference(gradient.values(), testing::torch_output("mse/gradient")) < 1e-16);
    CHECK_THROWS_AS(mean_squared_error(outputs, Tensor<double>(Shape{4, 3}), gradient), dptk::ArgumentError);
    CHECK_THROWS_AS(mean_squared_error(Tensor<double>(), Tensor<double>(), gradient), dptk::ArgumentError);
}

TEST_CASE("labels that are not a class, too few or too many are refused") {
    const Tensor<float> logits(Shape{2, 3});
    Tensor<float> gradient;
    CHECK_THROWS_WITH_AS(softmax_cross_entropy(logits, std::vector<int>{0, 3}, gradient),
                         "softmax_cross_entropy: expected labels in [0, 3), got 3 for sample 1",
                         dptk::ArgumentError);
    CHECK_THROWS_AS(softmax_cross_entropy(logits, std::vector<int>{-1, 0}, gradient), dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(softmax_cross_entropy(logits, std::vector<int>{0}, gradient),
                         "softmax_cross_entropy: expected 2 labels, one per sample, got 1",
                         dptk::ArgumentError);
    CHECK_THROWS_AS(softmax_cross_entropy(Tensor<float>(Shape{6}), std::vector<int>{0}, gradient),
                    dptk::ArgumentError);
}
