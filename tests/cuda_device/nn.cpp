// Networks on a real GPU against the f64 reference, in all precisions.
#include <doctest/doctest.h>
#include <dptk/core/cuda.hpp>
#include <dptk/nn/cuda/backend.hpp>
#include <dptk/nn/cuda/loss.hpp>
#include <dptk/optim/cuda/fused_optimizers.hpp>
#include <dptk/nn/loss.hpp>
#include <dptk/nn/models.hpp>
#include <dptk/nn/network.hpp>
#include <dptk/nn/reference/backend.hpp>
#include <dptk/optim/adam.hpp>
#include <dptk/optim/sgd.hpp>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "nn/support.hpp"

using namespace dptk::nn;
namespace cuda_runtime = dptk::cuda;

namespace {

[[nodiscard]] bool is_launched() {
    return std::getenv("DPTK_TEST_RANKS") != nullptr;
}

[[nodiscard]] DeviceTensor<float> on_device(const Tensor<float>& tensor, dptk::StreamRef stream) {
    DeviceTensor<float> copy(tensor.shape());
    cuda_runtime::copy_to_device(tensor.values(), copy.values(), stream);
    cuda_runtime::synchronize(stream);
    return copy;
}

[[nodiscard]] std::vector<float> on_host(const DeviceTensor<float>& tensor, dptk::StreamRef stream) {
    return cuda_runtime::to_host(tensor.values(), stream);
}

/// ‖found - expected‖ / ‖expected‖
template <class A, class B>
double distance(const A& found, const B& expected) {
    REQUIRE(found.size() == expected.size());
    double error = 0;
    double length = 1e-60;
    for (std::size_t i = 0; i < found.size(); ++i) {
        const double difference = static_cast<double>(found[i]) - static_cast<double>(expected[i]);
        error += difference * difference;
        length += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    }
    return std::sqrt(error / length);
}

/// The tolerances of a precision. Gradients deviate more, because rounding may flip the sign of ReLU's
/// input or the maximum of pooling.
struct Arithmetic {
    Precision precision;
    double output_tolerance;
    double gradient_tolerance;
};
constexpr Arithmetic arithmetics[] = {
    {Precision::fp32, 1e-5, 1e-4}, {Precision::tf32, 3e-3, 0.1}, {Precision::bf16, 2e-2, 0.2}};

void check_against_reference(const Graph& graph, const std::vector<std::size_t>& batches = {8, 3, 33, 1}) {
    for (const Arithmetic& arithmetic : arithmetics) {
        const std::string name(precision_name(arithmetic.precision));
        CAPTURE(name);
        const cuda_runtime::Stream stream;
        Network<Cuda> net(graph, 5, Cuda({.precision = arithmetic.precision, .stream = stream}));
        Network<Reference<double>> oracle(graph, 5);
        std::uint32_t pattern = 50;
        for (const std::size_t n : batches) {
            CAPTURE(n);
            ++pattern;
            const Shape whole = testing::with_batch(n, graph.input_shape());
            const auto input = on_device(testing::pattern_tensor<float>(pattern, whole, 8), stream);
            const auto& output = net.forward(input);
            const Tensor<double> oracle_input = testing::pattern_tensor<double>(pattern, whole, 8);
            const auto& expected = oracle.forward(oracle_input);
            CHECK(distance(on_host(output, stream), expected.values()) < arithmetic.output_tolerance);
            const auto gradient =
                on_device(testing::pattern_tensor<float>(pattern + 100, output.shape()), stream);
            const std::vector<float> gradient_before = on_host(gradient, stream);
            net.backward(gradient, InputGradient::compute);
            oracle.backward(testing::pattern_tensor<double>(pattern + 100, expected.shape()),
                            InputGradient::compute);
            CHECK(distance(on_host(net.input_gradient(), stream), oracle.input_gradient().values()) <
                  arithmetic.gradient_tolerance);
            for (std::size_t i = 0; i < net.parameter_count(); ++i) {
                CAPTURE(i);
                CHECK(distance(net.parameter_gradient(i), oracle.parameter_gradient(i)) <
                      arithmetic.gradient_tolerance);
            }
            CHECK(on_host(gradient, stream) == gradient_before);
        }
        for (std::size_t i = 0; i < net.parameter_count(); ++i)
            CHECK(distance(net.parameter_values(i), oracle.parameter_values(i)) < 1e-7);
    }
}

}  // namespace

TEST_CASE("each operation computes what the reference does" * doctest::skip(is_launched())) {
    check_against_reference(sequential({7}, {Linear{5}}));
    check_against_reference(sequential({48}, {Linear{64}, ReLU{}, Linear{32}}));
    check_against_reference(sequential({3, 7, 6}, {Conv2d{.out_channels = 5}}));
    check_against_reference(
        sequential({8, 9, 9}, {Conv2d{.out_channels = 16, .kernel_size = 5, .stride = 2, .padding = 2}}));
    check_against_reference(
        sequential({1, 9, 8}, {Conv2d{.out_channels = 16, .padding = 1}, ReLU{}, Conv2d{.out_channels = 8}}));
    check_against_reference(sequential({3, 7, 6}, {MaxPool2d{2}}));
    check_against_reference(sequential({4, 9, 9}, {MaxPool2d{3}, ReLU{}, Flatten{}}));
    check_against_reference(sequential({3, 4, 5}, {ReLU{}, Flatten{}, Linear{3}}));
    check_against_reference(sequential({3, 8, 8}, {Conv2d{8}, ReLU{}, ReLU{}, MaxPool2d{2}, Flatten{}}));
}

TEST_CASE("whole models compute what the reference does" * doctest::skip(is_launched())) {
    check_against_reference(mlp({.input = {1, 12, 12}, .classes = 10}));
    check_against_reference(lenet({.input = {1, 12, 12}, .classes = 10}));
    check_against_reference(convnet({.input = {3, 8, 8}, .classes = 10}), {8, 3});
}

TEST_CASE("an empty batch has gradients of zero" * doctest::skip(is_launched())) {
    const cuda_runtime::Stream stream;
    Network<Cuda> net(sequential({7}, {Linear{5}}), 5, Cuda({.stream = stream}));
    net.forward(on_device(testing::pattern_tensor<float>(1, {2, 7}), stream));
    net.backward(on_device(testing::pattern_tensor<float>(2, {2, 5}), stream));
    CHECK(net.parameter_gradient(1) != std::vector<float>(5));
    CHECK(net.forward(DeviceTensor<float>(Shape{0, 7})).shape() == Shape{0, 5});
    net.backward(DeviceTensor<float>(Shape{0, 5}));
    CHECK(net.parameter_gradient(0) == std::vector<float>(35));
    CHECK(net.parameter_gradient(1) == std::vector<float>(5));
}

TEST_CASE("operations and options that the GPU backend lacks are errors" * doctest::skip(is_launched())) {
    const auto refuses = [](const Graph& graph, const std::string& why) {
        CHECK_THROWS_WITH_AS(Network<Cuda>(graph, 1), why.c_str(), dptk::ArgumentError);
    };
    const Shape image{4, 8, 8};
    const std::string lacks =
        ": the GPU backend cannot run this operation yet; it runs Linear, Conv2d, ReLU, MaxPool2d and "
        "Flatten";
    refuses(sequential(image, {Conv2d{8}, BatchNorm2d{}}), "\"1\" (BatchNorm2d)" + lacks);
    refuses(sequential(image, {AvgPool2d{}}), "\"0\" (AvgPool2d)" + lacks);
    Graph residual(image);
    residual.add(residual.relu(residual.input()), residual.input());
    refuses(residual, "operation 2 (Add)" + lacks);
    const auto refuses_option = [&](const Operation& operation, const std::string& expected) {
        refuses(sequential(image, {operation}), "\"0\" (" + std::string(operation_name(operation)) +
                                                    "): the GPU backend runs this operation only with " +
                                                    expected);
    };
    refuses_option(Conv2d{.out_channels = 4, .groups = 4}, "groups = 1");
    refuses_option(Conv2d{.out_channels = 4, .dilation = 2}, "dilation = 1");
    refuses_option(Conv2d{.out_channels = 4, .bias = false}, "bias = true");
    refuses_option(Conv2d{.out_channels = 4, .kernel_size = {3, 1}},
                   "a square kernel_size, stride and padding");
    refuses_option(MaxPool2d{.kernel_size = {2, 1}}, "a square kernel_size");
    refuses_option(MaxPool2d{.kernel_size = 3, .stride = 2}, "stride = kernel_size");
    refuses_option(MaxPool2d{.padding = 1}, "padding = 0");
}

TEST_CASE("the loss is the host's" * doctest::skip(is_launched())) {
    const cuda_runtime::Stream stream;
    for (const std::size_t classes : {2U, 10U, 100U}) {
        const Tensor<float> logits = testing::pattern_tensor<float>(7, {33, classes}, 20);
        std::vector<std::int32_t> labels;
        for (std::size_t i = 0; i < 33; ++i) labels.push_back(static_cast<std::int32_t>(i * 7 % classes));
        Tensor<float> expected_gradient;
        const LossResult expected = softmax_cross_entropy(logits, labels, expected_gradient);
        DeviceLoss loss(stream);
        DeviceTensor<float> gradient;
        const auto on_gpu = on_device(logits, stream);
        const auto labels_on_gpu = cuda_runtime::to_device(labels, stream);
        for (int turn = 0; turn < 2; ++turn) loss.add(on_gpu, labels_on_gpu.span(), gradient);
        const LossTotals totals = loss.fetch();
        CHECK(totals.samples == 66);
        CHECK(totals.loss == doctest::Approx(expected.loss * 66).epsilon(1e-6));
        CHECK(totals.correct == static_cast<double>(2 * expected.correct));
        CHECK(distance(on_host(gradient, stream), expected_gradient.values()) < 1e-6);
        loss.reset();
        CHECK(loss.fetch().samples == 0);
    }
}

namespace {

/// Compares twenty steps of both optimizers, from the same values with the same gradients.
template <class Fused, class Plain>
void check_optimizer(Fused&& fused, Plain&& plain, const cuda_runtime::Stream& stream) {
    const std::vector<std::size_t> sizes{1, 1000, 16384, 40001};
    std::vector<std::vector<float>> values;
    std::vector<cuda_runtime::DeviceBuffer<float>> on_gpu;
    std::vector<cuda_runtime::DeviceBuffer<float>> gradients;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        values.push_back(testing::pattern_values<float>(static_cast<std::uint32_t>(i), sizes[i]));
        on_gpu.push_back(cuda_runtime::to_device(values.back(), stream));
        gradients.emplace_back(sizes[i]);
    }
    for (std::uint32_t step = 0; step < 20; ++step) {
        std::vector<dptk::ParameterRef> refs;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const std::vector<float> gradient = testing::pattern_values<float>(100 + step, sizes[i]);
            cuda_runtime::copy_to_device(gradient, gradients[i].span(), stream);
            plain.step(i, values[i], gradient);
            refs.push_back({.name = "p",
                            .shape = {sizes[i]},
                            .dtype = dptk::DType::f32,
                            .device = on_gpu[i].device(),
                            .count = sizes[i],
                            .value = on_gpu[i].data(),
                            .gradient = gradients[i].data()});
        }
        fused.step(refs);
        cuda_runtime::synchronize(stream);
        if (step == 10) {
            plain.set_lr(0.02);
            fused.set_lr(0.02);
        }
    }
    for (std::size_t i = 0; i < sizes.size(); ++i)
        CHECK(distance(cuda_runtime::to_host(on_gpu[i].span(), stream), values[i]) < 3e-5);
}

}  // namespace

TEST_CASE("optimizers step as the host's do" * doctest::skip(is_launched())) {
    const cuda_runtime::Stream stream;
    for (const double momentum : {0.0, 0.9}) {
        const dptk::SGDOptions options{.lr = 0.05, .momentum = momentum, .weight_decay = 1e-2};
        check_optimizer(dptk::FusedSGD(options, stream), dptk::SGD<float>(options), stream);
    }
    const dptk::AdamOptions options{.lr = 0.01, .weight_decay = 0.1};
    check_optimizer(dptk::FusedAdam(options, stream), dptk::Adam<float>(options), stream);
    check_optimizer(dptk::FusedAdamW(options, stream), dptk::AdamW<float>(options), stream);
}
