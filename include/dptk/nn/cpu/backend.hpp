/// Cpu: networks over oneDNN in f32, in the blocked layouts that it chooses for the processor at hand.
/// Primitives are made once for each batch size; parameters keep one layout, which depends on the processor
/// and the number of threads alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dptk/core/text.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/cpu/convolution.hpp"
#include "dptk/nn/cpu/flatten.hpp"
#include "dptk/nn/cpu/host_tensors.hpp"
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
/// than in PyTorch and the reference, a NaN need not come through ReLU and MaxPool2d: oneDNN's mostly make
/// another number of it.
class Cpu {
  public:
    using Scalar = float;
    using Tensor = nn::Tensor<float>;
    using Elements = std::span<float>;
    using Activation = cpu::Activation;
    using Parameter = cpu::Parameter;
    using Layer = cpu::Layer;

    /// Layouts of parameters are chosen for this batch size, a usual one, so that they do not depend on those
    /// that a network comes to see.
    static constexpr std::size_t nominal_batch = 32;

    std::vector<std::unique_ptr<Layer>> make_layers(std::span<const LayerSpec> specs,
                                                    std::span<const Shape> shapes, Generator& generator) {
        std::vector<std::unique_ptr<Layer>> layers;
        cpu::Dims dims{nominal_batch};
        dims.insert(dims.end(), shapes[0].begin(), shapes[0].end());
        cpu::Layout layout = cpu::row_major_layout(dims);
        Building building{.context = context_, .generator = generator};
        for (std::size_t i = 0; i < specs.size(); ++i) {
            building.linear_follows = std::ranges::any_of(
                specs.subspan(i), [](const LayerSpec& spec) { return std::holds_alternative<Linear>(spec); });
            building.post_op_before = std::exchange(building.post_op, post_op_of(specs.subspan(i)));
            building.label = dptk::detail::text("layer ", i, " (", layer_name(specs[i]), ")");
            layers.push_back(std::visit(
                [&](const auto& spec) { return building.make(spec, shapes[i], layout); }, specs[i]));
            layout = layers.back()->nominal_output();
        }
        return layers;
    }

    Activation wrap(const Tensor& tensor) {
        return cpu::translate_errors("input", [&] { return host_.wrap(context_, tensor); });
    }

    Activation wrap_gradient(const Tensor& output_gradient) { return wrap(output_gradient); }

    void store(const Activation& activation, Tensor& out) {
        cpu::translate_errors("output", [&] { host_.store(context_, activation, out.values()); });
    }

  private:
    /// A ReLU directly behind a Linear or a Conv2d is computed with the output of that.
    static cpu::PostOp post_op_of(std::span<const LayerSpec> layers) {
        const bool takes_one =
            std::holds_alternative<Linear>(layers[0]) || std::holds_alternative<Conv2d>(layers[0]);
        const bool relu_follows = layers.size() > 1 && std::holds_alternative<ReLU>(layers[1]);
        return takes_one && relu_follows ? cpu::PostOp::relu : cpu::PostOp::none;
    }

    /// Makes layers one after the other.
    struct Building {
        const cpu::Context& context;
        Generator& generator;
        std::string label = {};
        bool after_convolution = false;
        bool linear_follows = false;
        cpu::PostOp post_op = cpu::PostOp::none;
        cpu::PostOp post_op_before = cpu::PostOp::none;

        using Layout = cpu::Layout;
        using LayerPointer = std::unique_ptr<Layer>;

        LayerPointer make(const Linear& spec, const Shape& input, const Layout& layout) {
            after_convolution = false;
            return std::make_unique<cpu::LinearLayer>(
                context, label, cpu::LinearPasses(context, spec, input, post_op), layout, generator);
        }

        LayerPointer make(const Conv2d& spec, const Shape& input, const Layout& layout) {
            after_convolution = true;
            return std::make_unique<cpu::Conv2dLayer>(
                context, label, cpu::Conv2dPasses(context, spec, input, post_op), layout, generator);
        }

        LayerPointer make(const ReLU&, const Shape&, const Layout& layout) {
            return std::make_unique<cpu::ReLULayer>(context, label, layout, post_op_before);
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

    cpu::Context context_;
    cpu::HostTensors host_;
};

}  // namespace dptk::nn
