/// The networks whose outputs, losses and gradients record_torch.py has recorded, and the comparison of a
/// backend with them.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dptk/nn/loss.hpp"
#include "dptk/nn/models.hpp"
#include "dptk/nn/network.hpp"
#include "model_outputs.hpp"
#include "support.hpp"

namespace DPTK_NAMESPACE::nn::testing {

struct TorchCase {
    std::string name;
    Graph graph;
    std::size_t batch;
    bool cross_entropy = false;
    bool in_full = true;
};

inline std::vector<TorchCase> torch_cases() {
    return {
        {"linear", sequential({5}, {Linear{3}}), 4},
        {"relu", sequential({3, 4, 5}, {ReLU{}}), 2},
        {"conv", sequential({3, 6, 5}, {Conv2d{.out_channels = 4, .padding = 1}}), 2},
        {"conv_no_padding", sequential({1, 4, 5}, {Conv2d{.out_channels = 17, .kernel_size = 2}}), 3},
        {"conv_stride", sequential({2, 8, 6}, {Conv2d{.out_channels = 3, .stride = 2, .padding = 1}}), 2},
        {"conv_large",
         sequential({2, 7, 9}, {Conv2d{.out_channels = 3, .kernel_size = 5, .stride = 3, .padding = 2}}), 2},
        {"pool", sequential({3, 7, 4}, {MaxPool2d{2}}), 2},
        {"pool_3", sequential({2, 8, 6}, {MaxPool2d{3}}), 2},
        {"flatten", sequential({2, 4, 3}, {Flatten{}, Linear{3}}), 2},
        {"small_net",
         sequential({3, 8, 6}, {Conv2d{.out_channels = 5, .padding = 1}, ReLU{}, MaxPool2d{2}, Flatten{},
                                Linear{7}, ReLU{}, Linear{4}}),
         6, true},
        {"mlp", mlp({.input = {1, 8, 8}, .classes = 10}), 5, true, false},
        {"lenet", lenet({.input = {1, 12, 12}, .classes = 10}), 4, true, false},
        {"convnet", convnet({.input = {3, 8, 8}, .classes = 10}), 4, true, false},
    };
}

/// Runs one case on `Backend` and checks everything that PyTorch recorded for it. `tolerance` is the
/// maximum of difference().
template <class Backend>
void check_torch_case(const TorchCase& c, double tolerance) {
    using T = typename Backend::Scalar;
    CAPTURE(c.name);
    Network<Backend> net(c.graph, 1);
    set_pattern_parameters(net, c.in_full ? 1 : 0.5);
    const Tensor<T> input = pattern_tensor<T>(100, with_batch(c.batch, net.input_shape()), 4);
    const Tensor<T>& output = net.forward(input);
    CHECK(difference(output.values(), torch_output(c.name + "/output")) < tolerance);

    Tensor<T> gradient = pattern_tensor<T>(200, output.shape());
    if (c.cross_entropy) {
        std::vector<int> labels(c.batch);
        for (std::size_t i = 0; i < c.batch; ++i) labels[i] = static_cast<int>(i * 7 % output.shape()[1]);
        const LossResult result = softmax_cross_entropy(output, labels, gradient);
        CHECK(std::abs(result.loss - torch_output(c.name + "/loss")[0]) < tolerance * result.loss);
        CHECK(static_cast<double>(*result.correct) == torch_output(c.name + "/correct")[0]);
    }
    net.backward(gradient, InputGradient::compute);
    CHECK(difference(net.input_gradient().values(), torch_output(c.name + "/input_gradient")) < tolerance);
    std::size_t i = 0;
    net.for_each_parameter([&](const ParameterRef& parameter) {
        CAPTURE(parameter.name);
        const std::vector<T> found = net.parameter_gradient(i++);
        const std::string name = c.name + "/" + parameter.name;
        const std::vector<double>& expected = torch_output(name);
        if (c.in_full) {
            CHECK(difference(found, expected) < tolerance);
        } else {
            CHECK(difference(summary(found), expected) < tolerance);
        }
    });
}

}  // namespace DPTK_NAMESPACE::nn::testing
