/// Reference: networks in plain loops, for float and double, with the standard library alone. It is what
/// other backends are tested against, and what runs where no library is installed.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "dptk/nn/backend.hpp"
#include "dptk/nn/initialise.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/nn/reference/convolution.hpp"
#include "dptk/nn/reference/layer.hpp"
#include "dptk/nn/reference/linear.hpp"
#include "dptk/nn/reference/max_pool.hpp"
#include "dptk/nn/reference/relu.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn {

/// The backend for `Sequential<Reference<T>>`; one thread, row-major everywhere.
template <std::floating_point T>
class Reference {
  public:
    using Scalar = T;
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

    Activation wrap(const Tensor<T>& tensor) { return {tensor.values(), tensor.shape()[0]}; }

    void store(const Activation& activation, std::span<T> out) {
        std::ranges::copy(activation.values, out.begin());
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

}  // namespace dptk::nn
