// Measures a training step of dptk on a GPU, with single kernel launches and as one CUDA graph.
// bench/torch_gpu.py measures the same with PyTorch.
//   gpu_training MODEL PRECISION BATCH
#include <dptk/core/cuda.hpp>
#include <dptk/nn/cuda/backend.hpp>
#include <dptk/nn/cuda/loss.hpp>
#include <dptk/nn/models.hpp>
#include <dptk/nn/network.hpp>
#include <dptk/optim/cuda/fused_optimizers.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using namespace dptk;

namespace {

nn::Graph graph_of(const std::string& model, const nn::Shape& input) {
    if (model != "mlp") return nn::make_model(model, {.input = input, .classes = 10, .dropout = 0});
    return nn::sequential(
        input, {nn::Flatten{}, nn::Linear{2048}, nn::ReLU{}, nn::Linear{2048}, nn::ReLU{}, nn::Linear{10}});
}

nn::Precision precision_of(const std::string& name) {
    if (name == "bf16") return nn::Precision::bf16;
    return name == "tf32" ? nn::Precision::tf32 : nn::Precision::fp32;
}

template <class Step>
double median_seconds(const cuda::Stream& stream, Step&& step) {
    std::vector<double> times;
    for (int turn = 0; turn < 15; ++turn) {
        stream.synchronize();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < 50; ++i) step();
        stream.synchronize();
        times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 50);
    }
    std::ranges::nth_element(times, times.begin() + 7);
    return times[7];
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: gpu_training MODEL PRECISION BATCH\n");
        return 2;
    }
    const std::string model = argv[1];
    const std::size_t batch = std::strtoul(argv[3], nullptr, 10);
    const nn::Shape shape = model == "mlp"       ? nn::Shape{1, 28, 28}
                            : model == "convnet" ? nn::Shape{3, 32, 32}
                                                 : nn::Shape{3, 224, 224};
    const cuda::Stream stream;
    nn::Network<nn::Cuda> net(graph_of(model, shape), 1,
                              nn::Cuda({.precision = precision_of(argv[2]), .stream = stream}));
    nn::DeviceLoss loss(stream);
    dptk::FusedSGD sgd({.lr = 0.01, .momentum = 0.9}, stream);
    std::vector<ParameterRef> parameters;
    net.for_each_parameter([&](const ParameterRef& parameter) { parameters.push_back(parameter); });

    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    nn::DeviceTensor<float> images({batch, shape[0], shape[1], shape[2]});
    std::vector<float> pixels(images.size());
    for (float& pixel : pixels) pixel = normal(random);
    cuda::copy_to_device(pixels, images.values(), stream);
    std::vector<std::int32_t> host_labels(batch);
    for (std::int32_t& label : host_labels) label = static_cast<std::int32_t>(random() % 10);
    const cuda::DeviceBuffer<std::int32_t> labels = cuda::to_device(host_labels, stream);
    nn::DeviceTensor<float> gradient;

    const auto step = [&] {
        loss.add(net.forward(images), labels.span(), gradient);
        net.backward(gradient);
        sgd.step(parameters);
    };
    for (int i = 0; i < 3; ++i) step();
    const double plain = median_seconds(stream, step);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cuda::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    step();
    cuda::check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
    cuda::check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    const double captured = median_seconds(
        stream, [&] { cuda::check(cudaGraphLaunch(executable, stream.get()), "cudaGraphLaunch"); });
    const auto report = [&](const char* how, double seconds) {
        std::printf("gpu_training_%s_%s_%s_%zu %.0f samples/s | %.1f us\n", how, model.c_str(), argv[2],
                    batch, static_cast<double>(batch) / seconds, seconds * 1e6);
    };
    report("plain", plain);
    report("graph", captured);
    std::printf("loss %.6f\n", loss.fetch().loss / loss.fetch().samples);
}
