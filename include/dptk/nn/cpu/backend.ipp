#pragma once

#include "dptk/nn/cpu/backend.hpp"

#include <utility>
#include <variant>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/nn/cpu/convolution.hpp"
#include "dptk/nn/cpu/flatten.hpp"
#include "dptk/nn/cpu/linear.hpp"
#include "dptk/nn/cpu/max_pool.hpp"
#include "dptk/nn/cpu/relu.hpp"

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE std::vector<std::unique_ptr<Cpu::Layer>> Cpu::make_layers(std::span<const LayerSpec> specs,
                                                                      std::span<const Shape> shapes,
                                                                      Generator& generator) {
    std::vector<std::unique_ptr<Layer>> layers;
    cpu::Dims dims{nominal_batch};
    dims.insert(dims.end(), shapes[0].begin(), shapes[0].end());
    cpu::Layout layout = cpu::row_major_layout(dims);
    LayerFactory factory{.context = context_, .generator = generator};
    for (std::size_t i = 0; i < specs.size(); ++i) {
        factory.linear_follows = dptk::detail::any_of(
            specs.subspan(i), [](const LayerSpec& spec) { return std::holds_alternative<Linear>(spec); });
        factory.post_op_before = std::exchange(factory.post_op, post_op_of(specs.subspan(i)));
        factory.label = dptk::detail::text("layer ", i, " (", layer_name(specs[i]), ")");
        layers.push_back(
            std::visit([&](const auto& spec) { return factory.make(spec, shapes[i], layout); }, specs[i]));
        layout = layers.back()->nominal_output();
    }
    return layers;
}

DPTK_INLINE Cpu::Activation Cpu::wrap(const Tensor& tensor) {
    return cpu::translate_errors("input", [&] { return host_.wrap(context_, tensor); });
}

DPTK_INLINE void Cpu::store(const Activation& activation, Tensor& out) {
    cpu::translate_errors("output", [&] { host_.store(context_, activation, out.values()); });
}

DPTK_INLINE cpu::PostOp Cpu::post_op_of(std::span<const LayerSpec> layers) {
    const bool supports_post_op =
        std::holds_alternative<Linear>(layers[0]) || std::holds_alternative<Conv2d>(layers[0]);
    const bool relu_follows = layers.size() > 1 && std::holds_alternative<ReLU>(layers[1]);
    return supports_post_op && relu_follows ? cpu::PostOp::relu : cpu::PostOp::none;
}

DPTK_INLINE Cpu::LayerFactory::LayerPointer Cpu::LayerFactory::make(const Linear& spec, const Shape& input,
                                                                    const Layout& layout) {
    after_convolution = false;
    return std::make_unique<cpu::LinearLayer>(
        context, label, cpu::LinearPasses(context, spec, input, post_op), layout, generator);
}

DPTK_INLINE Cpu::LayerFactory::LayerPointer Cpu::LayerFactory::make(const Conv2d& spec, const Shape& input,
                                                                    const Layout& layout) {
    after_convolution = true;
    return std::make_unique<cpu::Conv2dLayer>(
        context, label, cpu::Conv2dPasses(context, spec, input, post_op), layout, generator);
}

DPTK_INLINE Cpu::LayerFactory::LayerPointer Cpu::LayerFactory::make(const ReLU&, const Shape&,
                                                                    const Layout& layout) {
    return std::make_unique<cpu::ReLULayer>(context, label, layout, post_op_before);
}

DPTK_INLINE Cpu::LayerFactory::LayerPointer Cpu::LayerFactory::make(const MaxPool2d& spec, const Shape& input,
                                                                    const Layout& layout) {
    return std::make_unique<cpu::MaxPool2dLayer>(context, label, spec, input, layout);
}

DPTK_INLINE Cpu::LayerFactory::LayerPointer Cpu::LayerFactory::make(const Flatten&, const Shape&,
                                                                    const Layout& layout) {
    if (after_convolution && linear_follows)
        return std::make_unique<cpu::IdentityFlattenLayer>(context, label, layout);
    return std::make_unique<cpu::FlattenLayer>(context, label, layout);
}

}  // namespace DPTK_NAMESPACE::nn
