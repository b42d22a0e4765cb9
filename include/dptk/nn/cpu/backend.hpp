/// Cpu: networks over oneDNN in f32, in the blocked layouts that it chooses for the processor at hand.
/// Primitives are made once for each batch size; parameters keep one layout, which depends on the processor
/// and the number of threads alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "dptk/core/text.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/cpu/convolution.hpp"
#include "dptk/nn/cpu/flatten.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/linear.hpp"
#include "dptk/nn/cpu/max_pool.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/parameter.hpp"
#include "dptk/nn/cpu/relu.hpp"
#include "dptk/nn/initialise.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn {

/// The backend for `Sequential<Cpu>`. Every oneDNN error becomes a BackendError that names the layer. Other
/// than in PyTorch and the reference, a NaN does not come through ReLU and MaxPool2d: oneDNN's make another
/// number of it.
class Cpu {
  public:
    using Scalar = float;
    using Activation = cpu::Activation;
    using Parameter = cpu::Parameter;
    using Layer = cpu::Layer;

    /// Layouts of parameters are chosen for this batch size, a usual one, so that they do not depend on those
    /// that a network comes to see.
    static constexpr std::size_t nominal_batch = 32;

    std::vector<std::unique_ptr<Layer>> make_layers(std::span<const LayerSpec> specs,
                                                    std::span<const Shape> shapes, Generator& generator) {
        std::vector<std::unique_ptr<Layer>> layers;
        cpu::Layout layout = cpu::row_major_layout(dims(nominal_batch, shapes[0]));
        Building building{.context = context_, .generator = generator};
        for (std::size_t i = 0; i < specs.size(); ++i) {
            building.linear_follows = std::ranges::any_of(
                specs.subspan(i), [](const LayerSpec& spec) { return std::holds_alternative<Linear>(spec); });
            building.label = dptk::detail::text("layer ", i, " (", layer_name(specs[i]), ")");
            layers.push_back(std::visit(
                [&](const auto& spec) { return building.make(spec, shapes[i], layout); }, specs[i]));
            layout = layers.back()->nominal_output();
        }
        return layers;
    }

    Activation wrap(const Tensor<float>& tensor) {
        const Shape sample(tensor.shape().begin() + 1, tensor.shape().end());
        const cpu::Layout layout = cpu::row_major_layout(dims(tensor.shape()[0], sample));
        // It is not overwritable, so the layers only read it.
        return {.memory = {layout, context_.engine, const_cast<float*>(tensor.data())},
                .overwritable = false};
    }

    void store(const Activation& activation, std::span<float> out) {
        const cpu::Layout row_major = cpu::row_major_layout(cpu::dims_of(activation.layout()));
        if (activation.layout() == row_major) {
            std::memcpy(out.data(), activation.memory.get_data_handle(), out.size_bytes());
            return;
        }
        cpu::translate_errors("output", [&] {
            cpu::reorder(context_, activation.memory, {row_major, context_.engine, out.data()});
        });
    }

  private:
    /// Makes layers one after the other.
    struct Building {
        const cpu::Context& context;
        Generator& generator;
        std::string label = {};
        bool after_convolution = false;
        bool linear_follows = false;

        using Layout = cpu::Layout;
        using LayerPointer = std::unique_ptr<Layer>;

        LayerPointer make(const Linear& spec, const Shape& input, const Layout& layout) {
            after_convolution = false;
            return std::make_unique<cpu::LinearLayer>(context, label, spec, input[0], layout, generator);
        }

        LayerPointer make(const Conv2d& spec, const Shape& input, const Layout& layout) {
            after_convolution = true;
            return std::make_unique<cpu::Conv2dLayer>(context, label, spec, input, layout, generator);
        }

        LayerPointer make(const ReLU&, const Shape&, const Layout& layout) {
            return std::make_unique<cpu::ReLULayer>(context, label, layout);
        }

        LayerPointer make(const MaxPool2d& spec, const Shape& input, const Layout& layout) {
            return std::make_unique<cpu::MaxPool2dLayer>(context, label, spec, input, layout);
        }

        LayerPointer make(const Flatten&, const Shape&, const Layout& layout) {
            if (after_convolution && linear_follows)
                return std::make_unique<cpu::PassingFlattenLayer>(context, label, layout);
            return std::make_unique<cpu::FlattenLayer>(context, label, layout);
        }
    };

    static cpu::Dims dims(std::size_t batch, const Shape& sample) {
        cpu::Dims result{static_cast<dnnl::memory::dim>(batch)};
        for (const std::size_t size : sample) result.push_back(static_cast<dnnl::memory::dim>(size));
        return result;
    }

    cpu::Context context_;
};

}  // namespace dptk::nn
