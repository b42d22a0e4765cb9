// torch_model BACKEND MODEL CASE.safetensors RESULT.safetensors: computes what check_torch.py compares with
// PyTorch. BACKEND is reference, in f64, or onednn.
// CASE holds the model's weights, and the tensors "case.input" and "case.gradient". RESULT gets the output in
// evaluation, the output in training, all gradients for the output gradient, and the model's weights and
// buffers after this step.
#include <dptk/nn/models.hpp>
#include <dptk/nn/network.hpp>
#include <dptk/nn/reference/backend.hpp>
#include <dptk/weights/load_weights.hpp>
#include <dptk/weights/safetensors_writer.hpp>
#ifdef DPTK_WITH_ONEDNN
#include <dptk/nn/cpu/backend.hpp>
#endif

#include <cstdio>
#include <string>
#include <vector>

namespace {

template <class T>
dptk::Tensor<T> tensor_of(const dptk::SafetensorsFile& file, const char* name) {
    const dptk::SafetensorsEntry* const entry = file.find(name);
    if (entry == nullptr) throw dptk::ArgumentError(std::string("the case has no ") + name);
    dptk::Tensor<T> tensor(entry->shape);
    file.read(*entry, {tensor.data(), tensor.size(), dptk::dtype_of<T>});
    return tensor;
}

template <class Backend>
void run(const std::string& model, const char* case_path, const char* result_path) {
    const dptk::SafetensorsFile file(case_path);
    using T = typename Backend::Scalar;
    const dptk::Tensor<T> input = tensor_of<T>(file, "case.input");
    const dptk::Tensor<T> gradient = tensor_of<T>(file, "case.gradient");
    dptk::nn::Network<Backend> net(
        dptk::nn::make_model(model, {.input = {input.shape().begin() + 1, input.shape().end()},
                                     .classes = gradient.shape()[1],
                                     .dropout = 0}),
        1);
    const dptk::LoadedWeights report = dptk::load_weights(net, file, dptk::Match::partial);
    if (!report.missing.empty() || !report.other_shape.empty()) throw dptk::ArgumentError(report.describe());

    std::vector<dptk::SafetensorsTensor> results;
    std::vector<std::vector<T>> memory(2 + net.parameter_count());
    const auto add = [&](const std::string& name, const dptk::Shape& shape, auto values) {
        std::vector<T>& own = memory[results.size()];
        own.assign(values.begin(), values.end());
        results.push_back({name, shape, {own.data(), own.size(), dptk::dtype_of<T>}});
    };
    net.set_mode(dptk::nn::Mode::evaluate);
    add("evaluated", gradient.shape(), net.forward(input).values());
    net.set_mode(dptk::nn::Mode::train);
    add("trained", gradient.shape(), net.forward(input).values());
    net.backward(gradient);
    std::size_t i = 0;
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        add("gradient." + parameter.name, parameter.shape, net.parameter_gradient(i++));
    });
    write_safetensors(result_path, results);
    dptk::save_weights(net, std::string(result_path) + ".weights");
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 5) return 2;
    const std::string backend = argv[1];
    if (backend == "reference") {
        run<dptk::nn::Reference<double>>(argv[2], argv[3], argv[4]);
    } else {
#ifdef DPTK_WITH_ONEDNN
        run<dptk::nn::Cpu>(argv[2], argv[3], argv[4]);
#else
        std::puts("SKIPPED: this program was built without oneDNN");
        return 77;
#endif
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "torch_model: %s\n", error.what());
    return 1;
}
