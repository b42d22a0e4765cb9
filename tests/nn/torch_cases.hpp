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
#include "dptk/nn/sequential.hpp"
#include "support.hpp"

namespace DPTK_NAMESPACE::nn::testing {

struct TorchCase {
    std::string name;
    std::vector<LayerSpec> specs;
    Shape input_shape;
    std::size_t batch;
    bool cross_entropy = false;
    bool in_full = true;
};

inline std::vector<TorchCase> torch_cases() {
    using Specs = std::vector<LayerSpec>;
    return {
        {"linear", Specs{Linear{3}}, {5}, 4},
        {"relu", Specs{ReLU{}}, {3, 4, 5}, 2},
        {"conv", Specs{Conv2d{.out_channels = 4, .kernel_size = 3, .padding = 1}}, {3, 6, 5}, 2},
        {"conv_no_padding", Specs{Conv2d{.out_channels = 17, .kernel_size = 2}}, {1, 4, 5}, 3},
        {"conv_stride",
         Specs{Conv2d{.out_channels = 3, .kernel_size = 3, .stride = 2, .padding = 1}},
         {2, 8, 6},
         2},
        {"conv_large",
         Specs{Conv2d{.out_channels = 3, .kernel_size = 5, .stride = 3, .padding = 2}},
         {2, 7, 9},
         2},
        {"pool", Specs{MaxPool2d{2}}, {3, 7, 4}, 2},
        {"pool_3", Specs{MaxPool2d{3}}, {2, 8, 6}, 2},
        {"flatten", Specs{Flatten{}, Linear{3}}, {2, 4, 3}, 2},
        {"small_net",
         Specs{Conv2d{.out_channels = 5, .kernel_size = 3, .padding = 1}, ReLU{}, MaxPool2d{2}, Flatten{},
               Linear{7}, ReLU{}, Linear{4}},
         {3, 8, 6},
         6,
         true},
        {"mlp", mlp(10), {1, 8, 8}, 5, true, false},
        {"lenet", lenet(10), {1, 12, 12}, 4, true, false},
        {"convnet", convnet(10), {3, 8, 8}, 4, true, false},
    };
}

/// Returns the sum, the norm, and a projection that detects elements in the wrong place, like
/// record_torch.py.
template <class T>
std::vector<double> summary(const std::vector<T>& gradient) {
    double sum = 0;
    double squares = 0;
    double projection = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        const double value = static_cast<double>(gradient[i]);
        sum += value;
        squares += value * value;
        projection += value * pattern<double>(300, i);
    }
    return {sum, std::sqrt(squares), projection};
}

/// Runs one case on `Backend` and checks everything that PyTorch recorded for it. `tolerance` is the
/// maximum of difference().
template <class Backend>
void check_torch_case(const TorchCase& c, double tolerance) {
    using T = typename Backend::Scalar;
    CAPTURE(c.name);
    Sequential<Backend> net(c.specs, c.input_shape, 1);
    set_pattern_parameters(net, c.in_full ? 1 : 0.5);
    const Tensor<T> input = pattern_tensor<T>(100, with_batch(c.batch, c.input_shape), 4);
    const Tensor<T>& output = net.forward(input);
    CHECK(difference(output.values(), torch_output(c.name + "/output")) < tolerance);

    Tensor<T> gradient = pattern_tensor<T>(200, output.shape());
    if (c.cross_entropy) {
        std::vector<int> labels(c.batch);
        for (std::size_t i = 0; i < c.batch; ++i) labels[i] = static_cast<int>(i * 7 % output.shape()[1]);
        const LossResult result = softmax_cross_entropy(output, labels, gradient);
        CHECK(std::abs(result.loss - torch_output(c.name + "/loss")[0]) < tolerance * result.loss);
        CHECK(static_cast<double>(result.correct) == torch_output(c.name + "/correct")[0]);
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
