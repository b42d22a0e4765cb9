// Gradients of all operations on the f64 reference backend, compared with finite differences.
#include <doctest/doctest.h>
#include <dptk/nn/models.hpp>
#include <dptk/nn/network.hpp>
#include <dptk/nn/reference/backend.hpp>

#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "operation_cases.hpp"
#include "support.hpp"

using namespace dptk::nn;
using dptk::nn::testing::pattern_tensor;

namespace {

using Net = Network<Reference<double>>;

/// Returns the largest difference between a gradient and its finite difference, where `values` are variables
/// of the loss, for 60 of them at most. A NaN is kept.
double error_of(std::span<double> values, std::span<const double> gradient,
                const std::function<double()>& loss) {
    double largest = 0;
    for (std::size_t i = 0; i < values.size(); i += values.size() / 60 + 1) {
        const double error = std::abs(testing::finite_difference(values[i], loss) - gradient[i]);
        if (!(error <= largest)) largest = error;
    }
    return largest;
}

/// Checks all gradients of a graph, for the loss Σ output · weight, except those of frozen parameters.
void check(const Graph& graph, std::size_t batch, Mode mode, const std::vector<std::size_t>& frozen = {},
           InputGradient input_gradient_kind = InputGradient::compute) {
    CAPTURE(batch);
    Net net(graph, 1);
    testing::set_case_parameters(net);
    net.set_mode(mode);
    net.set_frozen(frozen);
    dptk::Tensor<double> input = pattern_tensor<double>(1, testing::with_batch(batch, net.input_shape()), 8);
    const auto weight = pattern_tensor<double>(2, testing::with_batch(batch, net.output_shape()), 4);
    net.forward(input);
    std::vector<std::size_t> ready;
    net.backward(
        weight, [&](std::size_t i) { ready.push_back(i); }, input_gradient_kind);
    std::vector<std::size_t> trained;
    for (std::size_t i = net.parameter_count(); i-- > 0;)
        if (!net.is_frozen(i)) trained.push_back(i);
    CHECK(ready == trained);
    CHECK(trained.size() + frozen.size() == net.parameter_count());
    const std::vector<double> input_gradient(net.input_gradient().values().begin(),
                                             net.input_gradient().values().end());
    const auto loss = [&] {
        const dptk::Tensor<double>& output = net.forward(input);
        double sum = 0;
        for (std::size_t i = 0; i < output.size(); ++i) sum += output[i] * weight[i];
        return sum;
    };
    std::size_t index = 0;
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        if (net.is_frozen(index++)) return;
        CAPTURE(parameter.name);
        CHECK(error_of({static_cast<double*>(parameter.value), parameter.count},
                       {static_cast<const double*>(parameter.gradient), parameter.count}, loss) < 1e-5);
    });
    if (input_gradient_kind == InputGradient::compute)
        CHECK(error_of(input.values(), input_gradient, loss) < 1e-5);
}

void check_all(const Graph& graph) {
    for (const Mode mode : {Mode::train, Mode::evaluate})
        for (const std::size_t batch : {std::size_t{1}, std::size_t{3}}) check(graph, batch, mode);
}

}  // namespace

TEST_CASE("gradients of all operations agree with finite differences") {
    for (const testing::OperationCase& c : testing::operation_cases()) {
        CAPTURE(c.name);
        check_all(c.graph);
    }
}

TEST_CASE("gradients of models agree with finite differences") {
    check(mlp({.input = {1, 4, 4}, .classes = 5}), 2, Mode::train);
    check(convnet_mnist({.input = {1, 4, 4}, .classes = 3}), 2, Mode::train);
}

TEST_CASE("gradients of networks with frozen parameters agree with finite differences") {
    // Parameters 0 to 3, 4 to 6 and 7 to 9 belong to a convolution and a norm each.
    Graph graph({2, 4, 4});
    const Value first =
        graph.relu(graph.batch_norm("bn1", graph.conv2d("conv1", graph.input(), {3, 3, 1, 1})));
    const Conv2d same_size{.out_channels = 3, .padding = 1, .bias = false};
    const Value second = graph.relu(graph.batch_norm("bn2", graph.conv2d("conv2", first, same_size)));
    const Value third = graph.batch_norm("bn3", graph.conv2d("conv3", second, same_size));
    graph.linear("fc", graph.flatten(graph.relu(graph.add(third, first))), {2});
    for (const InputGradient kind : {InputGradient::skip, InputGradient::compute}) {
        check(graph, 2, Mode::train, {0, 1, 2, 3, 4, 5, 6}, kind);       // the lowest layers
        check(graph, 2, Mode::train, {4, 5, 6, 7, 8, 9, 10, 11}, kind);  // layers above those that train
        check(graph, 2, Mode::train, {2, 3, 5, 6, 8, 9}, kind);          // all norms
        check(graph, 2, Mode::train, {0, 1, 2, 5}, kind);                // half of two norms: they train
        check(graph, 2, Mode::train, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, kind);
    }
}

TEST_CASE("of equal values in a pooling window the first one gets the gradient") {
    Net net(sequential({1, 2, 4}, {MaxPool2d{2}}), 1);
    dptk::Tensor<double> input(Shape{1, 1, 2, 4});
    input[1] = input[4] = 3;
    const auto direction = pattern_tensor<double>(2, {1, 1, 1, 2});
    net.forward(input);
    net.backward(direction, InputGradient::compute);
    CHECK(testing::difference(net.input_gradient().values(),
                              std::vector<double>{0, direction[0], direction[1], 0, 0, 0, 0, 0}) == 0);
}

TEST_CASE("the reference propagates NaN through ReLU and pooling") {
    Net net(sequential({1, 2, 2}, {ReLU{}, MaxPool2d{2}}), 1);
    dptk::Tensor<double> input(Shape{1, 1, 2, 2});
    input[1] = std::nan("");
    input[2] = 3;
    CHECK(std::isnan(net.forward(input)[0]));
}

TEST_CASE(
    "dropout drops other elements in each step, the same in forward and backward, and none in evaluation") {
    Graph graph({1000});
    graph.dropout(graph.input(), 0.25);
    Net net(graph, 3), same(graph, 3), other(graph, 4);
    dptk::Tensor<double> input(dptk::Shape{2, 1000});
    input.fill(3);
    const auto values_of = [&](Net& one) {
        const auto values = one.forward(input).values();
        return std::vector<double>(values.begin(), values.end());
    };
    const std::vector<double> first = values_of(net);
    std::size_t dropped = 0;
    for (const double value : first) {
        CHECK((value == 0 || value == doctest::Approx(4)));
        dropped += value == 0 ? 1 : 0;
    }
    CHECK(dropped > 400);
    CHECK(dropped < 600);
    net.backward(input, InputGradient::compute);
    CHECK(std::vector<double>(net.input_gradient().values().begin(), net.input_gradient().values().end()) ==
          first);
    CHECK(values_of(same) == first);
    CHECK(values_of(other) != first);
    const std::vector<double> second = values_of(net);
    CHECK(second != first);
    CHECK(values_of(same) == second);
    net.set_mode(Mode::evaluate);
    CHECK(values_of(net) == std::vector<double>(2000, 3));
}

TEST_CASE("a batch norm's running statistics are used in evaluation") {
    Graph graph({2, 1, 2});
    const Value norm = graph.batch_norm("a", graph.input());
    Net net(graph, 1);
    dptk::Tensor<double> input(dptk::Shape{2, 2, 1, 2});
    for (std::size_t i = 0; i < 8; ++i) input[i] = static_cast<double>(i * i);
    net.forward(input);  // channel 0: 0, 1, 16, 25
    CHECK(net.statistics(norm).mean[0] == doctest::Approx(0.1 * 10.5));
    CHECK(net.statistics(norm).variance[0] == doctest::Approx(0.9 + 0.1 * 441 / 3));
    net.set_mode(Mode::evaluate);
    const double expected = (16 - 1.05) / std::sqrt(0.9 + 14.7 + 1e-5);
    CHECK(net.forward(input)[4] == doctest::Approx(expected));
    CHECK(net.statistics(norm).mean[0] == doctest::Approx(1.05));
}
