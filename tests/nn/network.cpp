#include "dptk/nn/network.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/nn/models.hpp"
#include "dptk/nn/reference/backend.hpp"
#include "support.hpp"

using namespace dptk::nn;

namespace {

using Net = Network<Reference<float>>;

Graph small_graph() {
    return sequential({1, 5, 4}, {Conv2d{.out_channels = 2, .kernel_size = 3}, ReLU{}, Flatten{}, Linear{3}});
}

Net small_net() {
    return {small_graph(), 11};
}

}  // namespace

TEST_CASE("parameters are numbered and named as PyTorch's Sequential does, weight before bias") {
    Net net = small_net();
    std::vector<std::string> names;
    std::vector<Shape> shapes;
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        names.push_back(parameter.name);
        shapes.push_back(parameter.shape);
        CHECK(parameter.dtype == dptk::DType::f32);
        CHECK(parameter.layout == 0);
        CHECK(parameter.count == dptk::element_count(parameter.shape));
        CHECK(parameter.value != nullptr);
        CHECK(parameter.gradient != nullptr);
    });
    CHECK(names == std::vector<std::string>{"0.weight", "0.bias", "3.weight", "3.bias"});
    CHECK(shapes == std::vector<Shape>{{2, 1, 3, 3}, {2}, {3, 12}, {3}});
    CHECK(net.parameter_count() == 4);
    CHECK(net.input_shape() == Shape{1, 5, 4});
    CHECK(net.output_shape() == Shape{3});
}

TEST_CASE("one seed gives equal networks, another one a different network") {
    Net a = small_net();
    Net b = small_net();
    Net c(small_graph(), 12);
    for (std::size_t i = 0; i < a.parameter_count(); ++i) {
        CHECK(a.parameter_values(i) == b.parameter_values(i));
        CHECK(a.parameter_values(i) != c.parameter_values(i));
    }
}

TEST_CASE("each gradient is announced once, the last parameter first, when it is complete") {
    Net net = small_net();
    const Tensor<float> input = testing::pattern_tensor<float>(1, {2, 1, 5, 4});
    const Tensor<float> direction = testing::pattern_tensor<float>(2, {2, 3});
    net.forward(input);
    net.backward(direction);
    std::vector<std::vector<float>> expected;
    for (std::size_t i = 0; i < net.parameter_count(); ++i) expected.push_back(net.parameter_gradient(i));
    net.for_each_parameter([](const dptk::ParameterRef& parameter) {
        std::fill_n(static_cast<float*>(parameter.gradient), parameter.count, -99.0F);
    });
    std::vector<std::size_t> order;
    net.forward(input);
    net.backward(direction, [&](std::size_t i) {
        order.push_back(i);
        CHECK(net.parameter_gradient(i) == expected[i]);
    });
    CHECK(order == std::vector<std::size_t>{3, 2, 1, 0});
}

TEST_CASE("backward overwrites gradients and does not add to them") {
    Net net = small_net();
    const Tensor<float> input = testing::pattern_tensor<float>(1, {2, 1, 5, 4});
    const Tensor<float> direction = testing::pattern_tensor<float>(2, {2, 3});
    net.forward(input);
    net.backward(direction);
    const std::vector<float> once = net.parameter_gradient(2);
    net.forward(input);
    net.backward(direction);
    CHECK(net.parameter_gradient(2) == once);
}

TEST_CASE("gradients are written to the storage that the caller supplies") {
    Net net = small_net();
    std::vector<float> storage(36, -1.0F);
    net.set_gradient_storage(2, storage);
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        CHECK((parameter.gradient == storage.data()) == (parameter.name == "3.weight"));
    });
    const Tensor<float> input = testing::pattern_tensor<float>(1, {2, 1, 5, 4});
    net.forward(input);
    net.backward(testing::pattern_tensor<float>(2, {2, 3}));
    CHECK(net.parameter_gradient(2) == storage);
    CHECK(storage != std::vector<float>(36, -1.0F));
    CHECK_THROWS_WITH_AS(
        net.set_gradient_storage(2, std::span(storage).first(35)),
        "Network: the gradient storage for parameter 3.weight: expected 36 elements, found 35",
        dptk::ArgumentError);
}

TEST_CASE("values lie in the storage that the caller supplies") {
    Net net = small_net(), same = small_net();
    std::vector<float> storage(36, -1.0F);
    net.set_value_storage(2, storage);
    CHECK(storage == same.parameter_values(2));
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        CHECK((parameter.value == storage.data()) == (parameter.name == "3.weight"));
    });
    const Tensor<float> input = testing::pattern_tensor<float>(1, {2, 1, 5, 4});
    const std::vector<float> others(36, 0.5F);
    storage = others;
    same.set_parameter_values(2, others);
    CHECK(testing::difference(net.forward(input).values(), same.forward(input).values()) == 0);
    CHECK_THROWS_AS(net.set_value_storage(2, std::span(storage).first(35)), dptk::ArgumentError);
}

TEST_CASE("exported parameter values equal the imported ones") {
    Net net = small_net();
    const std::vector<float> values = testing::pattern_values<float>(9, 18);
    net.set_parameter_values(0, values);
    CHECK(net.parameter_values(0) == values);
    CHECK_THROWS_AS(net.set_parameter_values(1, values), dptk::ArgumentError);
    CHECK_THROWS_AS(static_cast<void>(net.parameter_values(4)), dptk::ArgumentError);
}

TEST_CASE("a network moves with its memory") {
    static_assert(!std::is_copy_constructible_v<Net>);
    Net net = small_net();
    const Tensor<float> input = testing::pattern_tensor<float>(1, {2, 1, 5, 4});
    const Tensor<float>& before = net.forward(input);
    const std::vector<float> expected(before.values().begin(), before.values().end());
    Net moved(std::move(net));
    CHECK(testing::difference(moved.forward(input).values(), expected) == 0);
}

TEST_CASE("inputs and gradients of another shape are refused") {
    Net net = small_net();
    CHECK_THROWS_WITH_AS(net.backward(Tensor<float>(Shape{2, 3})),
                         "Network: call forward() before each backward()", dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(net.forward(Tensor<float>(Shape{2, 1, 4, 5})),
                         "Network: expected an input of shape [2, 1, 5, 4], found [2, 1, 4, 5]",
                         dptk::ArgumentError);
    CHECK_THROWS_AS(net.forward(Tensor<float>()), dptk::ArgumentError);
    const Tensor<float> input(Shape{2, 1, 5, 4});
    net.forward(input);
    CHECK_THROWS_WITH_AS(net.backward(Tensor<float>(Shape{3, 3})),
                         "Network: expected an output gradient of shape [2, 3], found [3, 3]",
                         dptk::ArgumentError);
    net.backward(Tensor<float>(Shape{2, 3}));
    // Gradients have overwritten the values of the forward pass.
    CHECK_THROWS_WITH_AS(net.backward(Tensor<float>(Shape{2, 3})),
                         "Network: call forward() before each backward()", dptk::ArgumentError);
}

TEST_CASE("an empty batch has an empty output, and its gradients are zero") {
    Net net = small_net();
    CHECK(net.forward(Tensor<float>(Shape{0, 1, 5, 4})).shape() == Shape{0, 3});
    std::vector<std::size_t> order;
    net.backward(
        Tensor<float>(Shape{0, 3}), [&](std::size_t i) { order.push_back(i); }, InputGradient::compute);
    CHECK(order == std::vector<std::size_t>{3, 2, 1, 0});
    CHECK(net.input_gradient().shape() == Shape{0, 1, 5, 4});
    for (std::size_t i = 0; i < net.parameter_count(); ++i)
        for (const float value : net.parameter_gradient(i)) CHECK(value == 0);
}

TEST_CASE("a graph needs operations, all of which lead to the output") {
    CHECK_THROWS_WITH_AS(Net(Graph({3}), 1), "Network: expected a graph with operations, found only an input",
                         dptk::ArgumentError);
    Graph g({3});
    g.linear("unused", g.input(), {2});
    g.linear("fc", g.input(), {2});
    CHECK_THROWS_WITH_AS(
        Net(g, 1),
        "Network: the output of \"unused\" (Linear) is not used: expected one output, the last "
        "operation's",
        dptk::ArgumentError);
}

TEST_CASE("frozen norms keep their statistics, and backward ends at the lowest layer that trains") {
    const Graph graph =
        sequential({2, 6, 6}, {Conv2d{.out_channels = 2}, BatchNorm2d{}, ReLU{}, Conv2d{.out_channels = 2},
                               BatchNorm2d{}, Flatten{}, Linear{3}});
    Net net(graph, 1), evaluating(graph, 1);
    const auto statistics = [](Net& from) {
        std::vector<std::vector<float>> all;
        from.for_each_buffer([&](const NamedBuffer& buffer) {
            if (buffer.data.dtype != dptk::DType::f32) return;
            const auto* const first = static_cast<const float*>(buffer.data.data);
            all.emplace_back(first, first + buffer.data.count);
        });
        return all;
    };
    const std::vector<std::vector<float>> before = statistics(net);
    const Tensor<float> input = testing::pattern_tensor<float>(1, {5, 2, 6, 6});
    const Tensor<float> direction = testing::pattern_tensor<float>(2, {5, 3});
    net.set_frozen(std::vector<std::size_t>{0, 1, 2, 3, 4, 5});
    net.for_each_parameter([](const dptk::ParameterRef& parameter) {
        std::fill_n(static_cast<float*>(parameter.gradient), parameter.count, -99.0F);
    });
    net.forward(input);
    net.backward(direction);
    for (std::size_t i = 0; i < net.parameter_count(); ++i) {
        CAPTURE(i);
        const std::vector<float> gradient = net.parameter_gradient(i);
        CHECK(net.is_frozen(i) == (i < 6));
        CHECK(dptk::detail::all_of(gradient, [](float value) { return value == -99; }) == net.is_frozen(i));
    }
    const std::vector<std::vector<float>> after = statistics(net);
    CHECK(after[0] == before[0]);
    CHECK(after[1] == before[1]);
    CHECK(after[2] != before[2]);
    CHECK(after[3] != before[3]);

    net.set_frozen(std::vector<std::size_t>{2, 3, 6, 7});
    CHECK_FALSE(net.is_frozen(0));
    evaluating.set_mode(Mode::evaluate);
    const std::vector<std::vector<float>> kept = statistics(net);
    std::size_t buffers = 0;
    evaluating.for_each_buffer([&](const NamedBuffer& buffer) {
        if (buffer.data.dtype == dptk::DType::f32)
            std::ranges::copy(kept[buffers++], static_cast<float*>(buffer.data.data));
    });
    CHECK(testing::difference(net.forward(input).values(), evaluating.forward(input).values()) == 0);
    net.backward(direction);
    evaluating.backward(direction);
    for (const std::size_t i : {0U, 1U, 4U, 5U, 8U, 9U})
        CHECK(net.parameter_gradient(i) == evaluating.parameter_gradient(i));
    CHECK(statistics(net) == kept);

    const Tensor<float> none(Shape{0, 2, 6, 6});
    std::vector<std::size_t> ready;
    net.forward(none);
    net.backward(Tensor<float>(Shape{0, 3}), [&](std::size_t i) { ready.push_back(i); });
    CHECK(ready == std::vector<std::size_t>{9, 8, 5, 4, 1, 0});
    CHECK_THROWS_WITH_AS(net.set_frozen(std::vector<std::size_t>{10}),
                         "Network: parameter index 10 is out of range: there are 10 parameters",
                         dptk::ArgumentError);
    CHECK_THROWS_AS(static_cast<void>(net.is_frozen(10)), dptk::ArgumentError);
    CHECK(net.is_frozen(2));
    net.forward(input);
    net.set_frozen({});
    CHECK_THROWS_AS(net.backward(direction), dptk::ArgumentError);  // of a forward with other frozen layers
}
