// Tests the f64 reference backend against central finite differences, for parameters and inputs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "dptk/nn/loss.hpp"
#include "dptk/nn/models.hpp"
#include "dptk/nn/reference/backend.hpp"
#include "dptk/nn/sequential.hpp"
#include "support.hpp"

using namespace dptk::nn;

namespace {

using Net = Sequential<Reference<double>>;

/// A loss that depends on every output: its projection on a fixed direction.
double projected(Net& net, const Tensor<double>& input, const Tensor<double>& direction) {
    const Tensor<double>& output = net.forward(input);
    double sum = 0;
    for (std::size_t i = 0; i < output.size(); ++i) sum += output[i] * direction[i];
    return sum;
}

/// Compares `gradient` with finite differences of `loss` in about 40 of the `values`. The step is so small
/// that it almost never crosses a kink of ReLU or pooling.
template <class Loss>
void check_differences(std::span<double> values, std::span<const double> gradient, Loss&& loss) {
    double scale = 1e-12;
    for (const double value : gradient) scale = std::max(scale, std::abs(value));
    const std::size_t stride = values.size() / 40 + 1;
    for (std::size_t i = 0; i < values.size(); i += stride) {
        CAPTURE(i);
        CHECK(std::abs(testing::finite_difference(values[i], loss) - gradient[i]) < 1e-6 * scale);
    }
}

void check_gradients(std::vector<LayerSpec> specs, const Shape& input_shape, std::size_t batch) {
    Net net(std::move(specs), input_shape, 3);
    Tensor<double> input = testing::pattern_tensor<double>(1, testing::with_batch(batch, input_shape), 4);
    const Tensor<double> direction =
        testing::pattern_tensor<double>(2, testing::with_batch(batch, net.output_shape()), 4);
    const auto loss = [&] { return projected(net, input, direction); };
    loss();
    net.backward(direction, InputGradient::compute);
    const std::vector<double> input_gradient(net.input_gradient().values().begin(),
                                             net.input_gradient().values().end());
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        CAPTURE(parameter.name);
        check_differences({static_cast<double*>(parameter.value), parameter.count},
                          {static_cast<const double*>(parameter.gradient), parameter.count}, loss);
    });
    check_differences(input.values(), input_gradient, loss);
}

}  // namespace

TEST_CASE("gradients of each reference layer agree with finite differences") {
    SUBCASE("Linear") {
        check_gradients({Linear{4}}, {7}, 3);
    }
    SUBCASE("Conv2d with padding") {
        check_gradients({Conv2d{.out_channels = 4, .kernel_size = 3, .padding = 1}}, {3, 5, 4}, 2);
    }
    SUBCASE("Conv2d with a stride that leaves pixels over") {
        check_gradients({Conv2d{.out_channels = 2, .kernel_size = 3, .stride = 2, .padding = 1}}, {2, 6, 8},
                        2);
    }
    SUBCASE("Conv2d with a stride and padding beyond the kernel") {
        check_gradients({Conv2d{.out_channels = 2, .kernel_size = 2, .stride = 3, .padding = 3}}, {2, 4, 5},
                        2);
    }
    SUBCASE("Conv2d with a kernel as large as the image") {
        check_gradients({Conv2d{.out_channels = 3, .kernel_size = 4}}, {2, 4, 4}, 2);
    }
    SUBCASE("ReLU") {
        check_gradients({ReLU{}}, {3, 4, 5}, 2);
    }
    SUBCASE("MaxPool2d") {
        check_gradients({MaxPool2d{2}}, {3, 5, 4}, 2);
    }
    SUBCASE("MaxPool2d with a large window") {
        check_gradients({MaxPool2d{3}}, {2, 6, 7}, 2);
    }
    SUBCASE("Flatten") {
        check_gradients({Flatten{}}, {3, 2, 2}, 2);
    }
}

TEST_CASE("gradients of whole reference models agree with finite differences") {
    SUBCASE("mlp") {
        check_gradients(mlp(5), {1, 4, 4}, 3);
    }
    SUBCASE("lenet") {
        check_gradients(lenet(5), {2, 8, 8}, 2);
    }
    SUBCASE("convnet") {
        check_gradients(convnet(3), {1, 4, 4}, 2);
    }
}

TEST_CASE("of equal values in a pooling window the first one gets the gradient") {
    Net net({MaxPool2d{2}}, {1, 2, 4}, 1);
    Tensor<double> input(Shape{1, 1, 2, 4});
    input[1] = input[4] = 3;
    const Tensor<double> direction = testing::pattern_tensor<double>(2, {1, 1, 1, 2});
    net.forward(input);
    net.backward(direction, InputGradient::compute);
    CHECK(testing::difference(net.input_gradient().values(),
                              std::vector<double>{0, direction[0], direction[1], 0, 0, 0, 0, 0}) == 0);
}

TEST_CASE("the reference propagates NaN through ReLU and pooling") {
    Net net({ReLU{}, MaxPool2d{2}}, {1, 2, 2}, 1);
    Tensor<double> input(Shape{1, 1, 2, 2});
    input[1] = std::nan("");
    input[2] = 3;
    CHECK(std::isnan(net.forward(input)[0]));
}
