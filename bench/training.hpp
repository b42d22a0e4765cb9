// Training of dptk's own networks for benchmarks; every step uses the same batch.
#pragma once

#include <dptk/train.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bench {

#ifdef DPTK_WITH_ONEDNN
using Backend = dptk::nn::Cpu;
#else
using Backend = dptk::nn::Reference<float>;
#endif

/// A network, its optimizer, and a batch.
struct Training {
    dptk::nn::Network<Backend> net;
    dptk::nn::Tensor<float> input;
    dptk::nn::Tensor<float> output_gradient;
    std::vector<std::uint8_t> labels;
    dptk::SGD<float> sgd{{.lr = 1e-4, .momentum = 0.9}};

    Training(const dptk::nn::Graph& graph, std::size_t batch) : net(graph, 1), labels(batch) {
        dptk::nn::Shape shape = graph.input_shape();
        shape.insert(shape.begin(), batch);
        input.resize(shape);
        for (std::size_t i = 0; i < input.values().size(); ++i)
            input.values()[i] = static_cast<float>(i % 97) / 97;
        for (std::size_t i = 0; i < batch; ++i) labels[i] = static_cast<std::uint8_t>(i % 10);
    }

    void forward_backward() {
        static_cast<void>(dptk::nn::softmax_cross_entropy(net.forward(input), labels, output_gradient));
        net.backward(output_gradient);
    }

    void step(const std::vector<dptk::ParameterRef>& parameters) {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const dptk::ParameterRef& parameter = parameters[i];
            sgd.step(i, std::span(static_cast<float*>(parameter.value), parameter.count),
                     std::span<const float>(static_cast<float*>(parameter.gradient), parameter.count));
        }
    }
};

}  // namespace bench
