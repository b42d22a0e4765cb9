#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpu_support.hpp"
#include "dptk/nn/cpu/threads.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/nn/models.hpp"
#include "dptk/optim/sgd.hpp"

using namespace dptk::nn;

namespace {

Graph odd_net() {
    return sequential({3, 6, 6}, {Conv2d{.out_channels = 17, .padding = 1}, ReLU{}, MaxPool2d{2}, Flatten{},
                                  Linear{11}, ReLU{}, Linear{3}});
}

/// Returns the gradients of all parameters after a step.
std::vector<std::vector<float>> gradients_of(Network<Cpu>& net, const Tensor<float>& input,
                                             const Tensor<float>& direction) {
    net.forward(input);
    net.backward(direction);
    std::vector<std::vector<float>> gradients;
    for (std::size_t i = 0; i < net.parameter_count(); ++i) gradients.push_back(net.parameter_gradient(i));
    return gradients;
}

std::vector<std::uint64_t> layouts_of(Network<Cpu>& net) {
    std::vector<std::uint64_t> layouts;
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) { layouts.push_back(parameter.layout); });
    return layouts;
}

template <class Net>
double train(Net& net, std::size_t steps, std::size_t n) {
    using T = typename Net::Scalar;
    dptk::SGD<T> sgd({.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3});
    const Tensor<T> input = testing::pattern_tensor<T>(1, testing::with_batch(n, net.input_shape()), 4);
    std::vector<int> labels;
    for (std::size_t i = 0; i < n; ++i) labels.push_back(static_cast<int>(i % net.output_shape()[0]));
    Tensor<T> gradient;
    double loss = 0;
    for (std::size_t step = 0; step < steps; ++step) {
        loss = softmax_cross_entropy(net.forward(input), labels, gradient).loss;
        net.backward(gradient);
        std::size_t slot = 0;
        net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
            sgd.step(slot++, {static_cast<T*>(parameter.value), parameter.count},
                     {static_cast<const T*>(parameter.gradient), parameter.count});
        });
    }
    return loss;
}

}  // namespace

TEST_CASE("whole models on oneDNN compute what the reference does, for batches of several sizes") {
    SUBCASE("mlp") {
        testing::check_against_reference(mlp({.input = {1, 12, 12}, .classes = 10}));
    }
    SUBCASE("lenet") {
        testing::check_against_reference(lenet({.input = {1, 12, 12}, .classes = 10}), 1e-4);
    }
    SUBCASE("convnet") {
        testing::check_against_reference(convnet({.input = {3, 8, 8}, .classes = 10}), 1e-4, {8, 3, 8, 1});
    }
}

TEST_CASE("bf16 on oneDNN rounds the operands of products and convolutions") {
    if (!cpu::has_bf16_products()) {
        CHECK_THROWS_WITH_AS(
            Cpu({.precision = Precision::bf16}),
            "Cpu: Precision::bf16 requires a processor with AVX512_BF16, which oneDNN may use",
            dptk::ArgumentError);
        MESSAGE("SKIPPED: oneDNN finds no AVX512_BF16");
        return;
    }
    const auto bf16 = [] { return Cpu({.precision = Precision::bf16}); };
    // Smooth functions: a ReLU or a maximum may choose another element after rounding.
    const std::vector<Graph> graphs = {
        sequential({3, 6, 6}, {Conv2d{.out_channels = 17, .padding = 1}, Sigmoid{}, AvgPool2d{2}, Flatten{},
                               Linear{11}, Sigmoid{}, Linear{3}}),
        sequential({4, 9, 7}, {Conv2d{.out_channels = 8, .stride = 2, .padding = 1, .bias = false}, Sigmoid{},
                               Conv2d{.out_channels = 8, .padding = 1, .groups = 8},
                               Conv2d{.out_channels = 6, .kernel_size = 1, .groups = 2}, Flatten{},
                               Linear{.out_features = 5, .bias = false}})};
    for (const Graph& graph : graphs) {
        testing::check_against_reference(bf16(), graph, 0.05);
        Network<Cpu> rounded(graph, 5, bf16()), exact(graph, 5);
        const auto input = testing::pattern_tensor<float>(1, testing::with_batch(8, graph.input_shape()), 8);
        CHECK(testing::difference(rounded.forward(input).values(), exact.forward(input).values()) > 1e-4);
        CHECK(layouts_of(rounded) == layouts_of(exact));
    }
    Network<Cpu> rounded(odd_net(), 5, bf16()), exact(odd_net(), 5);
    CHECK(train(rounded, 20, 8) == doctest::Approx(train(exact, 20, 8)).epsilon(0.1));
}

TEST_CASE("frozen layers on oneDNN compute what the reference does") {
    const auto conv = [](std::size_t channels) { return Conv2d{.out_channels = channels, .bias = false}; };
    const Graph graph = sequential(
        {3, 8, 8}, {conv(5), BatchNorm2d{}, ReLU{}, conv(6), BatchNorm2d{}, ReLU{}, Flatten{}, Linear{4}});
    for (const std::vector<std::size_t>& frozen :
         {std::vector<std::size_t>{0, 1, 2}, {3, 4, 5, 6, 7}, {1, 2, 4, 5}})
        testing::check_against_reference(graph, 1e-4, {8, 3}, Mode::train, frozen);
}

TEST_CASE("a network on oneDNN trains like the reference does") {
    Network<Cpu> net(odd_net(), 3);
    Network<Reference<double>> oracle(odd_net(), 3);
    const auto padding = testing::padding_of(net);
    const double loss = train(net, 20, 7);
    CHECK(loss == doctest::Approx(train(oracle, 20, 7)).epsilon(1e-3));
    CHECK(loss < 1);
    std::size_t i = 0;
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        CHECK(testing::padding_is_zero(padding[i++], parameter.value));
    });
}

TEST_CASE("the padding of odd channel counts is exactly the surplus of a parameter") {
    Network<Cpu> net(odd_net(), 3);
    const auto padding = testing::padding_of(net);
    std::size_t i = 0;
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        const auto zeros = static_cast<std::size_t>(std::ranges::count(padding[i++], true));
        CHECK(parameter.count - zeros == dptk::element_count(parameter.shape));
    });
}

TEST_CASE("the layout of parameters does not depend on the batch sizes") {
    Network<Cpu> a(odd_net(), 3);
    Network<Cpu> b(odd_net(), 3);
    const auto before = layouts_of(a);
    train(a, 1, 1);
    train(b, 1, 64);
    CHECK(layouts_of(a) == before);
    CHECK(layouts_of(b) == before);
    CHECK(before[1] == 0);  // a bias is row-major
}

TEST_CASE("on oneDNN batches may be in any number of tensors, which may be destroyed") {
    Network<Cpu> net(sequential({5}, {ReLU{}}), 3);
    std::vector<Tensor<float>> inputs;
    for (std::uint32_t i = 0; i < 20; ++i) inputs.push_back(testing::pattern_tensor<float>(i, {2, 5}));
    for (std::uint32_t i = 0; i < 40; ++i) {
        CAPTURE(i);
        Tensor<float>& input = inputs[i % 20];
        // It has the input's shape, since a ReLU's output has the same shape.
        const Tensor<float> direction = testing::pattern_tensor<float>(100 + i, {2, 5});
        net.forward(input);
        net.backward(direction, InputGradient::compute);
        std::vector<float> expected;
        for (std::size_t k = 0; k < input.size(); ++k) expected.push_back(input[k] > 0 ? direction[k] : 0);
        CHECK(testing::difference(net.input_gradient().values(), expected) == 0);
        input = testing::pattern_tensor<float>(200 + i, {2, 5});
    }
}

TEST_CASE("gradient storage need not be aligned, and may change between steps") {
    Network<Cpu> net(odd_net(), 3);
    const Tensor<float> input = testing::pattern_tensor<float>(1, {4, 3, 6, 6});
    const Tensor<float> direction = testing::pattern_tensor<float>(2, {4, 3});
    const std::vector<std::vector<float>> expected = gradients_of(net, input, direction);
    std::vector<std::size_t> counts;
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) { counts.push_back(parameter.count); });
    for (std::size_t offset = 1; offset < 4; ++offset) {
        CAPTURE(offset);
        std::vector<std::vector<float>> storage;
        for (std::size_t i = 0; i < counts.size(); ++i) {
            storage.emplace_back(counts[i] + offset, std::numeric_limits<float>::quiet_NaN());
            net.set_gradient_storage(i, std::span(storage[i]).subspan(offset));
        }
        net.forward(input);
        net.backward(direction);
        for (std::size_t i = 0; i < counts.size(); ++i)
            CHECK(testing::difference(net.parameter_gradient(i), expected[i]) < 1e-6);
        net.for_each_parameter(
            [&](const dptk::ParameterRef& parameter) { CHECK(parameter.gradient != nullptr); });
    }
    std::vector<float> wrong(counts[0] + 1);
    CHECK_THROWS_AS(net.set_gradient_storage(0, wrong), dptk::ArgumentError);
}

TEST_CASE("value storage on oneDNN has the values, and writing to it changes them") {
    Network<Cpu> net(odd_net(), 3), same(odd_net(), 3), other(odd_net(), 4);
    const Tensor<float> input = testing::pattern_tensor<float>(1, {4, 3, 6, 6});
    net.forward(input);
    std::vector<std::vector<float>> storage;
    net.for_each_parameter(
        [&](const dptk::ParameterRef& parameter) { storage.emplace_back(parameter.count, 9.0F); });
    for (std::size_t i = 0; i < storage.size(); ++i) net.set_value_storage(i, storage[i]);
    CHECK(testing::difference(net.forward(input).values(), same.forward(input).values()) == 0);
    std::size_t i = 0;
    other.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        std::copy_n(static_cast<const float*>(parameter.value), parameter.count, storage[i++].begin());
    });
    CHECK(testing::difference(net.forward(input).values(), other.forward(input).values()) == 0);
}

TEST_CASE("each gradient on oneDNN is complete when it is announced") {
    Network<Cpu> net(odd_net(), 3);
    const Tensor<float> input = testing::pattern_tensor<float>(1, {4, 3, 6, 6});
    const Tensor<float> direction = testing::pattern_tensor<float>(2, {4, 3});
    const std::vector<std::vector<float>> expected = gradients_of(net, input, direction);
    net.for_each_parameter([](const dptk::ParameterRef& parameter) {
        std::fill_n(static_cast<float*>(parameter.gradient), parameter.count, 99.0F);
    });
    std::size_t next = net.parameter_count();
    net.forward(input);
    net.backward(direction, [&](std::size_t i) {
        CHECK(i == --next);
        CHECK(testing::difference(net.parameter_gradient(i), expected[i]) < 1e-6);
    });
    CHECK(next == 0);
}

TEST_CASE("a network on oneDNN may change threads, and move, between steps") {
    Network<Cpu> net(odd_net(), 3);
    Network<Cpu> same(odd_net(), 3);
    train(same, 3, 5);
    const double expected = train(same, 3, 5);
    train(net, 3, 5);  // creates the primitives on this thread
    Network<Cpu> moved(std::move(net));
    double loss = 0;
    std::thread([&] { loss = train(moved, 3, 5); }).join();
    CHECK(loss == doctest::Approx(expected).epsilon(1e-5));
}

TEST_CASE("networks on oneDNN run on several threads at once, each its own") {
    Network<Cpu> single(odd_net(), 3);
    const double expected = train(single, 5, 5);
    std::vector<double> losses(4);
    std::vector<std::thread> threads;
    threads.reserve(losses.size());
    for (double& loss : losses) {
        threads.emplace_back([&loss] {
            Network<Cpu> net(odd_net(), 3);
            loss = train(net, 5, 5);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const double loss : losses) CHECK(loss == doctest::Approx(expected).epsilon(1e-5));
}

TEST_CASE("errors of oneDNN become a BackendError that names the layer") {
    try {
        cpu::translate_errors("layer 3 (Conv2d)",
                              [] { throw dnnl::error(dnnl_invalid_arguments, "no such thing"); });
        FAIL("nothing was thrown");
    } catch (const dptk::BackendError& error) {
        CHECK(std::string(error.what()) == "oneDNN: layer 3 (Conv2d): no such thing (status 2)");
    }
}

TEST_CASE("the number of oneDNN's threads may be set, and must be positive") {
    CHECK(cpu::set_num_threads(1));
    CHECK_THROWS_AS(cpu::set_num_threads(0), dptk::ArgumentError);
}

TEST_CASE("storage may change between forward and backward, also of operations that oneDNN lacks") {
    Graph graph({3, 6, 6});
    graph.batch_norm("bn", graph.conv2d("conv", graph.input(), {.out_channels = 5}));
    graph.synchronize_batch_norms();
    Network<Cpu> net(graph, 1), same(graph, 1);
    const Tensor<float> input = testing::pattern_tensor<float>(1, {4, 3, 6, 6});
    const Tensor<float> direction = testing::pattern_tensor<float>(2, {4, 5, 4, 4});
    std::vector<std::vector<float>> gradients, values;
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        gradients.emplace_back(parameter.count);
        values.emplace_back(parameter.count);
    });
    net.forward(input);
    same.forward(input);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        net.set_gradient_storage(i, gradients[i]);
        net.set_value_storage(i, values[i]);
    }
    net.backward(direction);
    same.backward(direction);
    for (std::size_t i = 0; i < gradients.size(); ++i)
        CHECK(net.parameter_gradient(i) == same.parameter_gradient(i));
    // With SSE4.1 all layouts are row-major.
    const std::vector<std::uint64_t> layouts = layouts_of(net);
    if (std::ranges::count(layouts, 0U) == static_cast<std::ptrdiff_t>(layouts.size())) {
        CHECK_NOTHROW(net.use_row_major_parameters());
    } else {
        CHECK_THROWS_WITH_AS(net.use_row_major_parameters(),
                             "the layout of a parameter cannot change after storage for it was set: call "
                             "use_row_major_parameters() or agree_on_layouts() first",
                             dptk::ArgumentError);
    }
}

TEST_CASE("errors of oneDNN for inputs become a BackendError") {
    CHECK_THROWS_AS(Network<Cpu>(sequential(Shape(13, 1), {ReLU{}}), 1), dptk::BackendError);
}
