// Networks on a real GPU against the f64 reference, in all precisions.
#include <doctest/doctest.h>
#include <dptk/comm/thread.hpp>
#include <dptk/core/cuda.hpp>
#include <dptk/nn/cuda/backend.hpp>
#include <dptk/nn/cuda/loss.hpp>
#include <dptk/nn/loss.hpp>
#include <dptk/nn/models.hpp>
#include <dptk/nn/network.hpp>
#include <dptk/nn/reference/backend.hpp>
#include <dptk/optim/adam.hpp>
#include <dptk/optim/cuda/fused_optimizers.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>
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

/// ‖values‖
template <class Values>
double norm(const Values& values) {
    double sum = 0;
    for (const auto value : values) sum += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(sum);
}

/// ‖found - expected‖ / max(‖expected‖, least)
template <class A, class B>
double distance(const A& found, const B& expected, double least = 1e-30) {
    REQUIRE(found.size() == expected.size());
    std::vector<double> differences(found.begin(), found.end());
    for (std::size_t i = 0; i < found.size(); ++i) differences[i] -= static_cast<double>(expected[i]);
    return norm(differences) / std::max(norm(expected), least);
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

/// Returns the values of the running statistics, one after the other.
template <class Net>
std::vector<double> running_statistics(Net& net) {
    std::vector<double> all;
    net.for_each_buffer([&](const NamedBuffer& buffer) {
        if (buffer.data.dtype == dptk::DType::i64) {
            std::int64_t count = 0;
            net.fetch_buffer(buffer.data, &count);
            all.push_back(static_cast<double>(count));
        } else {
            std::vector<typename Net::Scalar> values(buffer.data.count);
            net.fetch_buffer(buffer.data, values.data());
            all.insert(all.end(), values.begin(), values.end());
        }
    });
    return all;
}

void check_against_reference(const Graph& graph, const std::vector<std::size_t>& batches = {8, 3, 33, 1},
                             std::span<const Arithmetic> checked = arithmetics) {
    for (const Arithmetic& arithmetic : checked) {
        const std::string name(precision_name(arithmetic.precision));
        CAPTURE(name);
        const cuda_runtime::Stream stream;
        Network<Cuda> net(graph, 5, Cuda({.precision = arithmetic.precision, .stream = stream}));
        Network<Reference<double>> oracle(graph, 5);
        std::uint32_t pattern = 50;
        for (std::size_t i = 0; i <= batches.size(); ++i) {
            // The first batch once more in evaluation.
            const std::size_t n = batches[i % batches.size()];
            const Mode mode = i == batches.size() ? Mode::evaluate : Mode::train;
            CAPTURE(n);
            CAPTURE(i);
            net.set_mode(mode);
            oracle.set_mode(mode);
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
            // A bias before a batch norm has a gradient of zero, but for rounding.
            double least = 0;
            for (std::size_t p = 0; p < net.parameter_count(); ++p)
                least = std::max(least, 1e-4 * norm(oracle.parameter_gradient(p)));
            for (std::size_t p = 0; p < net.parameter_count(); ++p) {
                CAPTURE(p);
                CHECK(distance(net.parameter_gradient(p), oracle.parameter_gradient(p), least) <
                      arithmetic.gradient_tolerance);
            }
            if (!running_statistics(oracle).empty())
                CHECK(distance(running_statistics(net), running_statistics(oracle)) <
                      arithmetic.output_tolerance);
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

TEST_CASE("convolutions and pools of all kinds compute what the reference does" *
          doctest::skip(is_launched())) {
    const Shape image{8, 9, 11};
    check_against_reference(sequential(image, {Conv2d{.out_channels = 5, .bias = false}}));
    check_against_reference(sequential(image, {Conv2d{.out_channels = 8, .bias = false}, ReLU{}}));
    check_against_reference(sequential(
        image, {Conv2d{.out_channels = 12, .kernel_size = {3, 1}, .stride = {1, 2}, .padding = {2, 0}}}));
    check_against_reference(sequential(
        image, {Conv2d{.out_channels = 8, .kernel_size = 3, .padding = 2, .dilation = 2}, ReLU{}}));
    check_against_reference(sequential(image, {Conv2d{.out_channels = 16, .padding = 1, .groups = 2}}));
    check_against_reference(sequential(
        image, {Conv2d{.out_channels = 8, .stride = 2, .padding = 1, .groups = 8, .bias = false}}));
    check_against_reference(sequential({7}, {Linear{.out_features = 5, .bias = false}}));
    check_against_reference(sequential({7}, {Linear{.out_features = 8, .bias = false}, ReLU{}, Linear{3}}));
    const Shape odd{3, 9, 11};
    check_against_reference(sequential(odd, {MaxPool2d{.kernel_size = 3, .stride = 2, .padding = 1}}));
    check_against_reference(sequential(odd, {MaxPool2d{.kernel_size = {2, 3}, .stride = {1, 2}}}));
    check_against_reference(sequential(odd, {AvgPool2d{}}));
    check_against_reference(sequential(odd, {AvgPool2d{.kernel_size = 3, .stride = 2, .padding = 1}}));
    check_against_reference(sequential(odd, {GlobalAvgPool2d{}, Flatten{}, Linear{4}}));
}

TEST_CASE("batch norms, sums and dropout compute what the reference does" * doctest::skip(is_launched())) {
    const Shape image{5, 6, 7};
    check_against_reference(sequential(image, {BatchNorm2d{}}));
    check_against_reference(sequential(image, {BatchNorm2d{.eps = 1e-3, .momentum = 0.3}, ReLU{}}));
    check_against_reference(sequential(image, {BatchNorm2d{}, ReLU{}, MaxPool2d{}, Flatten{}, Linear{3}}));
    check_against_reference(sequential(image, {BatchNorm2d{}, ReLU6{}, SiLU{}}));
    check_against_reference(sequential(image, {Dropout{.p = 0.3}}));
    check_against_reference(sequential(image, {Flatten{}, Dropout{.p = 0.5}, Linear{4}}));
    // A ReLU's output with three consumers, one of which passes its gradient on, and another one a pool.
    Graph graph(image);
    const Value x = graph.relu(graph.conv2d("a", graph.input(), {.out_channels = 8, .padding = 1}));
    const Value y = graph.relu(
        graph.batch_norm("norm", graph.conv2d("b", x, {.out_channels = 8, .padding = 1, .bias = false})));
    const Value pooled = graph.max_pool(x, {.kernel_size = 3, .stride = 1, .padding = 1});
    graph.relu(graph.add(graph.add(y, x), pooled));
    check_against_reference(graph);
}

TEST_CASE("residual models compute what the reference does" * doctest::skip(is_launched())) {
    constexpr Arithmetic fp32[] = {{Precision::fp32, 1e-4, 2e-2}};
    check_against_reference(convnet_mnist({.input = {1, 28, 28}, .classes = 10}), {8, 3}, fp32);
    check_against_reference(resnet(18, {.input = {3, 16, 16}, .classes = 10, .stem = Stem::small}), {8},
                            fp32);
    check_against_reference(mobilenet_v2({.input = {3, 32, 32}, .classes = 10}), {8}, fp32);
}

TEST_CASE("a batch norm of two ranks is that of one on both batches" * doctest::skip(is_launched())) {
    const Shape image{5, 6, 7};
    const Graph graph = sequential(
        image, {Conv2d{.out_channels = 8, .bias = false}, BatchNorm2d{.is_synchronized = true}, ReLU{}});
    const auto part = [](const Tensor<float>& whole, std::size_t first, std::size_t count) {
        Shape shape(whole.shape().begin(), whole.shape().end());
        const std::size_t size = whole.values().size() / shape[0];
        shape[0] = count;
        Tensor<float> out(shape);
        std::copy_n(whole.values().begin() + static_cast<std::ptrdiff_t>(first * size), count * size,
                    out.values().begin());
        return out;
    };
    const Tensor<float> input = testing::pattern_tensor<float>(1, testing::with_batch(5, image), 8);
    const Tensor<float> gradient = testing::pattern_tensor<float>(2, {5, 8, 4, 5});
    const cuda_runtime::Stream one_stream;
    Network<Cuda> one(graph, 5, Cuda({.precision = Precision::fp32, .stream = one_stream}));
    const std::vector<float> expected = on_host(one.forward(on_device(input, one_stream)), one_stream);
    one.backward(on_device(gradient, one_stream), InputGradient::compute);
    const std::vector<float> expected_gradient = on_host(one.input_gradient(), one_stream);
    const std::vector<std::vector<std::size_t>> splits{{2, 3}, {5, 0}};
    for (const std::vector<std::size_t>& counts : splits) {
        dptk::launch_threads(2, [&](dptk::ProcessGroup& group) {
            const auto rank = static_cast<std::size_t>(group.rank());
            const std::size_t first = rank == 0 ? 0 : counts[0];
            const cuda_runtime::Stream stream;
            Network<Cuda> net(graph, 5, Cuda({.precision = Precision::fp32, .stream = stream}));
            net.set_group(group);
            const auto own = [&](const std::vector<float>& whole) {
                const std::size_t size = whole.size() / 5;
                return std::vector<float>(
                    whole.begin() + static_cast<std::ptrdiff_t>(first * size),
                    whole.begin() + static_cast<std::ptrdiff_t>((first + counts[rank]) * size));
            };
            CHECK(distance(on_host(net.forward(on_device(part(input, first, counts[rank]), stream)), stream),
                           own(expected)) < 1e-5);
            net.backward(on_device(part(gradient, first, counts[rank]), stream), InputGradient::compute);
            CHECK(distance(on_host(net.input_gradient(), stream), own(expected_gradient)) < 1e-5);
            CHECK(distance(running_statistics(net), running_statistics(one)) < 1e-6);
            for (std::size_t p = 0; p < net.parameter_count(); ++p) {
                std::vector<float> sum = net.parameter_gradient(p);
                group.all_reduce(sum);
                CHECK(distance(sum, one.parameter_gradient(p)) < 1e-4);
            }
        });
    }
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
        ": the GPU backend cannot run this operation yet; it runs Linear, Conv2d, BatchNorm2d, ReLU, ReLU6, "
        "SiLU, Add, MaxPool2d, AvgPool2d, GlobalAvgPool2d, Flatten and Dropout";
    refuses(sequential(image, {Conv2d{8}, Softmax{}}), "\"1\" (Softmax)" + lacks);
    refuses(sequential(image, {Sigmoid{}}), "\"0\" (Sigmoid)" + lacks);
    const std::string only = ": the GPU backend runs this operation only with ";
    refuses(sequential(image, {Conv2d{.out_channels = 6, .groups = 2}}),
            "\"0\" (Conv2d)" + only + "groups = 1, or with numbers of channels that are multiples of 4");
    refuses(sequential(image, {MaxPool2d{.kernel_size = 300, .padding = 150}}),
            "\"0\" (MaxPool2d)" + only + "windows of at most 65536 elements");
    Graph graph(image);
    const Value flat = graph.flatten(graph.conv2d("a", graph.input(), {4}));
    graph.add(flat, graph.linear("b", flat, {144}));
    refuses(graph,
            "operation 4 (Add)" + only +
                "two images, or two outputs of Linear, but not with a flattened image and another value");
}

TEST_CASE("dropout is not captured in a CUDA graph" * doctest::skip(is_launched())) {
    const cuda_runtime::Stream stream;
    Network<Cuda> net(sequential({8}, {Dropout{}}), 1, Cuda({.stream = stream}));
    const auto input = on_device(testing::pattern_tensor<float>(1, {2, 8}), stream);
    net.forward(input);
    cudaGraph_t graph = nullptr;
    cuda_runtime::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "begin");
    CHECK_THROWS_WITH_AS(net.forward(input),
                         "this operation cannot be captured in a CUDA graph: the graph would drop the same "
                         "elements in each step",
                         dptk::ArgumentError);
    cuda_runtime::check(cudaStreamEndCapture(stream.get(), &graph), "end");
    cuda_runtime::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
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
        CHECK(totals.correct == static_cast<double>(2 * *expected.correct));
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
