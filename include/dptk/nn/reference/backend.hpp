/// Reference, the backend that computes networks in plain loops, for float and double, without any library.
/// Other backends are tested against it, and it runs where no library is installed.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/nn/initialize.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/nn/reference/convolution.hpp"
#include "dptk/nn/reference/layer.hpp"
#include "dptk/nn/reference/linear.hpp"
#include "dptk/nn/reference/max_pool.hpp"
#include "dptk/nn/reference/relu.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn {

/// The backend for `Sequential<Reference<T>>`. It uses one thread, and row-major memory everywhere.
template <std::floating_point T>
class Reference {
  public:
    using Scalar = T;
    using Tensor = nn::Tensor<T>;
    using Elements = std::span<T>;
    using Activation = reference::Activation<T>;
    using Parameter = reference::Parameter<T>;
    using Layer = reference::Layer<T>;

    std::vector<std::unique_ptr<Layer>> make_layers(std::span<const LayerSpec> specs,
                                                    std::span<const Shape> shapes, Generator& generator) {
        std::vector<std::unique_ptr<Layer>> layers;
        for (std::size_t i = 0; i < specs.size(); ++i)
            layers.push_back(std::visit(
                [&](const auto& spec) { return make_layer(spec, shapes[i], generator); }, specs[i]));
        return layers;
    }

    Activation wrap(const Tensor& input) { return {input.values(), input.shape()[0]}; }

    Activation wrap_gradient(const Tensor& output_gradient) { return wrap(output_gradient); }

    void store(const Activation& activation, Tensor& out) {
        dptk::detail::copy(activation.values, out.values().begin());
    }

  private:
    using LayerPointer = std::unique_ptr<Layer>;

    static LayerPointer make_layer(const Linear& spec, const Shape& input, Generator& generator) {
        return std::make_unique<reference::LinearLayer<T>>(spec, input, generator);
    }

    static LayerPointer make_layer(const Conv2d& spec, const Shape& input, Generator& generator) {
        return std::make_unique<reference::Conv2dLayer<T>>(spec, input, generator);
    }

    static LayerPointer make_layer(const ReLU&, const Shape&, Generator&) {
        return std::make_unique<reference::ReLULayer<T>>();
    }

    static LayerPointer make_layer(const MaxPool2d& spec, const Shape& input, Generator&) {
        return std::make_unique<reference::MaxPool2dLayer<T>>(spec, input);
    }

    static LayerPointer make_layer(const Flatten&, const Shape&, Generator&) {
        return std::make_unique<reference::FlattenLayer<T>>();
    }
};

}  // namespace DPTK_NAMESPACE::nn
