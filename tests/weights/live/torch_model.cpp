// torch_model MODEL CASE.safetensors RESULT.safetensors: computes what check-torch compares with PyTorch.
// CASE holds the model's weights, and the tensors "case.input" and "case.gradient". RESULT gets the output in
// evaluation, the output in training, all gradients for the output gradient, and the model's weights and
// buffers after this step.
#include <dptk/nn/reference/graph_network.hpp>
#include <dptk/nn/residual_models.hpp>
#include <dptk/nn/weights/load_weights.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

using Net = dptk::nn::GraphNetwork<double>;

dptk::Tensor<double> tensor_of(const dptk::SafetensorsFile& file, const char* name) {
    const dptk::SafetensorsEntry* const entry = file.find(name);
    if (entry == nullptr) throw dptk::ArgumentError(std::string("the case has no ") + name);
    dptk::Tensor<double> tensor(entry->shape);
    file.read(*entry, {tensor.data(), tensor.size(), dptk::DType::f64});
    return tensor;
}

dptk::nn::Graph model_of(const std::string& name, const dptk::nn::ModelOptions& options) {
    return name == "mobilenet_v2" ? dptk::nn::mobilenet_v2(options)
                                  : dptk::nn::resnet(std::stoi(name.substr(6)), options);
}

void run(const std::string& model, const char* case_path, const char* result_path) {
    const dptk::SafetensorsFile file(case_path);
    const dptk::Tensor<double> input = tensor_of(file, "case.input");
    const dptk::Tensor<double> gradient = tensor_of(file, "case.gradient");
    Net net(model_of(model, {.input = {input.shape().begin() + 1, input.shape().end()},
                             .classes = gradient.shape()[1],
                             .dropout = 0}),
            1);
    const dptk::LoadedWeights report = dptk::load_weights(net, file, dptk::Match::partial);
    if (!report.missing.empty() || !report.other_shape.empty()) throw dptk::ArgumentError(report.describe());

    std::vector<dptk::SafetensorsTensor> results;
    std::vector<std::vector<double>> memory(2 + net.parameter_count());
    const auto add = [&](const std::string& name, const dptk::Shape& shape, auto values) {
        std::vector<double>& own = memory[results.size()];
        own.assign(values.begin(), values.end());
        results.push_back({name, shape, {own.data(), own.size(), dptk::DType::f64}});
    };
    net.set_mode(dptk::nn::reference::Mode::evaluate);
    add("evaluated", gradient.shape(), net.forward(input).values());
    net.set_mode(dptk::nn::reference::Mode::train);
    add("trained", gradient.shape(), net.forward(input).values());
    net.backward(gradient, [](std::size_t) {});
    std::size_t i = 0;
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        add("gradient." + parameter.name, parameter.shape, net.parameter_gradient(i++));
    });
    write_safetensors(result_path, results);
    dptk::save_weights(net, std::string(result_path) + ".weights");
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 4) return 2;
    run(argv[1], argv[2], argv[3]);
} catch (const std::exception& error) {
    std::fprintf(stderr, "torch_model: %s\n", error.what());
    return 1;
}
