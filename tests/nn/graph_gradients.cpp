// Gradients of a Graph's operations in f64, compared with finite differences.
#include <doctest/doctest.h>
#include <dptk/nn/reference/graph_network.hpp>
#include <dptk/nn/residual_models.hpp>

#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "support.hpp"

using namespace dptk::nn;
using dptk::nn::testing::pattern_tensor;
using reference::Mode;

namespace {

/// Returns the largest difference between a gradient and its finite difference, where `values` are variables
/// of the loss. A NaN is kept.
double error_of(std::span<double> values, std::span<const double> gradient,
                const std::function<double()>& loss) {
    double largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double error = std::abs(testing::finite_difference(values[i], loss) - gradient[i]);
        if (!(error <= largest)) largest = error;
    }
    return largest;
}

/// Checks all gradients of a graph, for the loss Σ output · weight.
void check(Graph graph, std::size_t batch, Mode mode) {
    CAPTURE(graph.summary());
    CAPTURE(batch);
    GraphNetwork<double> net(std::move(graph), 1);
    for (std::size_t i = 0; i < net.parameter_count(); ++i) {  // batch norms begin with ones and zeros
        const std::span<double> values = net.parameter_values(i);
        const auto added =
            testing::pattern_values<double>(static_cast<std::uint32_t>(50 + i), values.size(), 1);
        for (std::size_t e = 0; e < values.size(); ++e) values[e] += added[e];
    }
    net.set_mode(mode);
    dptk::Shape shape = net.graph().nodes()[0].shape;
    shape.insert(shape.begin(), batch);
    dptk::Tensor<double> input = pattern_tensor<double>(1, shape, 8);
    dptk::Shape out = net.graph().output_shape();
    out.insert(out.begin(), batch);
    const dptk::Tensor<double> weight = pattern_tensor<double>(2, out, 4);
    net.forward(input);
    std::vector<std::size_t> ready;
    net.backward(weight, [&](std::size_t i) { ready.push_back(i); });
    for (std::size_t i = 0; i < ready.size(); ++i) CHECK(ready[i] == net.parameter_count() - 1 - i);
    CHECK(ready.size() == net.parameter_count());
    std::vector<std::vector<double>> gradients;
    for (std::size_t i = 0; i < net.parameter_count(); ++i)
        gradients.emplace_back(net.parameter_gradient(i).begin(), net.parameter_gradient(i).end());
    const std::vector<double> input_gradient(net.input_gradient().values().begin(),
                                             net.input_gradient().values().end());
    const auto loss = [&] {
        const dptk::Tensor<double>& output = net.forward(input);
        double sum = 0;
        for (std::size_t i = 0; i < output.size(); ++i) sum += output[i] * weight[i];
        return sum;
    };
    for (std::size_t i = 0; i < net.parameter_count(); ++i) {
        CAPTURE(i);
        CHECK(error_of(net.parameter_values(i), gradients[i], loss) < 1e-5);
    }
    CHECK(error_of(input.values(), input_gradient, loss) < 1e-5);
}

void check_all(const dptk::Shape& input, const std::function<void(Graph&, Value)>& build) {
    for (const Mode mode : {Mode::train, Mode::evaluate}) {
        for (const std::size_t batch : {1U, 3U}) {
            Graph graph(input);
            build(graph, graph.input());
            check(std::move(graph), batch, mode);
        }
    }
}

}  // namespace

TEST_CASE("gradients of all operations agree with finite differences") {
    check_all({5}, [](Graph& g, Value x) { g.linear("a", x, {.out_features = 3}); });
    check_all({5}, [](Graph& g, Value x) { g.linear("a", x, {.out_features = 3, .bias = false}); });
    check_all({3, 5, 4}, [](Graph& g, Value x) { g.conv2d("a", x, {.out_channels = 2, .padding = 1}); });
    check_all({4, 7, 5}, [](Graph& g, Value x) {
        g.conv2d("a", x,
                 {.out_channels = 6,
                  .kernel_size = {3, 2},
                  .stride = {2, 1},
                  .padding = {1, 2},
                  .dilation = {2, 3},
                  .groups = 2,
                  .bias = false});
    });
    check_all({3, 4, 5},
              [](Graph& g, Value x) { g.conv2d("a", x, {.out_channels = 3, .stride = 2, .groups = 3}); });
    check_all({3, 3, 5}, [](Graph& g, Value x) { g.batch_norm("a", x); });
    check_all({2, 3, 3}, [](Graph& g, Value x) { g.relu(x); });
    check_all({2, 3, 3},
              [](Graph& g, Value x) { g.relu6(g.conv2d("a", x, {.out_channels = 2, .padding = 1})); });
    check_all({7}, [](Graph& g, Value x) { g.sigmoid(x); });
    check_all({7}, [](Graph& g, Value x) { g.softmax(x); });
    check_all({4, 2, 3}, [](Graph& g, Value x) { g.softmax(x); });
    check_all({3, 4, 5}, [](Graph& g, Value x) { g.max_pool(x, 3, 2, 1); });
    check_all({2, 5, 6}, [](Graph& g, Value x) { g.max_pool(x, {2, 3}, {1, 2}); });
    check_all({2, 5, 6}, [](Graph& g, Value x) { g.avg_pool(x, {3, 2}, 2, 1); });
    check_all({3, 4, 5}, [](Graph& g, Value x) { g.global_avg_pool(x); });
    check_all({3, 2, 2}, [](Graph& g, Value x) { g.linear("a", g.flatten(x), {.out_features = 2}); });
    check_all({3, 2, 2}, [](Graph& g, Value x) { g.multiply(x, g.sigmoid(g.global_avg_pool(x))); });
    check_all({3, 2, 2}, [](Graph& g, Value x) { g.multiply(x, x); });
}

TEST_CASE("a value with one, two or three consumers gets the sum of their gradients") {
    check_all({2, 4, 4}, [](Graph& g, Value x) { g.add(x, x); });
    check_all({2, 4, 4}, [](Graph& g, Value x) {
        const Value y = g.conv2d("a", x, {.out_channels = 2, .padding = 1});
        const Value z = g.sigmoid(y);
        g.add(g.add(y, z), g.multiply(z, y));
    });
    check_all({4, 6, 6}, [](Graph& g, Value x) {
        for (const char* const name : {"block0", "block1"}) {
            const Graph::Scope scope = g.scope(name);
            Value y = g.relu(
                g.batch_norm("bn1", g.conv2d("conv1", x, {.out_channels = 4, .stride = 2, .padding = 1})));
            y = g.batch_norm("bn2", g.conv2d("conv2", y, {.out_channels = 6, .padding = 1}));
            x = g.conv2d("downsample", x, {.out_channels = 6, .kernel_size = 1, .stride = 2, .bias = false});
            x = g.relu(g.add(y, x));
        }
    });
}

TEST_CASE(
    "dropout drops other elements in each step, the same in forward and backward, and none in evaluation") {
    Graph graph({1000});
    graph.dropout(graph.input(), 0.25);
    GraphNetwork<double> net(graph, 3), same(graph, 3), other(graph, 4);
    dptk::Tensor<double> input(dptk::Shape{2, 1000});
    input.fill(3);
    const auto values_of = [&](GraphNetwork<double>& one) {
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
    net.backward(input, [](std::size_t) {});
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
    GraphNetwork<double> net(graph, 1);
    dptk::Tensor<double> input(dptk::Shape{2, 2, 1, 2});
    for (std::size_t i = 0; i < 8; ++i) input[i] = static_cast<double>(i * i);
    net.forward(input);  // channel 0: 0, 1, 16, 25
    CHECK(net.statistics(norm, 0)[0] == doctest::Approx(0.1 * 10.5));
    CHECK(net.statistics(norm, 1)[0] == doctest::Approx(0.9 + 0.1 * 441 / 3));
    net.set_mode(Mode::evaluate);
    const double expected = (16 - 1.05) / std::sqrt(0.9 + 14.7 + 1e-5);
    CHECK(net.forward(input)[4] == doctest::Approx(expected));
    CHECK(net.statistics(norm, 0)[0] == doctest::Approx(1.05));
}

TEST_CASE("inputs and gradients of another shape are errors") {
    Graph graph({2, 3, 3});
    graph.relu(graph.input());
    GraphNetwork<float> net(graph, 1);
    CHECK_THROWS_AS(net.forward(dptk::Tensor<float>(dptk::Shape{2, 3, 3})), dptk::ArgumentError);
    CHECK(net.forward(dptk::Tensor<float>(dptk::Shape{0, 2, 3, 3})).shape() == dptk::Shape{0, 2, 3, 3});
    CHECK_THROWS_AS(net.forward(dptk::Tensor<float>()), dptk::ArgumentError);
    net.forward(dptk::Tensor<float>(dptk::Shape{1, 2, 3, 3}));
    CHECK_THROWS_AS(net.backward(dptk::Tensor<float>(dptk::Shape{1, 2, 3, 4}), [](std::size_t) {}),
                    dptk::ArgumentError);
}
