#pragma once

#include "dptk/nn/cuda/backend.hpp"

#include <string>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/nn/cuda/convolution.hpp"
#include "dptk/nn/cuda/linear.hpp"
#include "dptk/nn/cuda/max_pool.hpp"
#include "dptk/nn/cuda/relu.hpp"

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE Cuda::Cuda(const CudaOptions& options)
    : context_(std::make_unique<cuda::Context>(options.precision, options.stream)) {}

DPTK_INLINE std::vector<std::unique_ptr<Cuda::Layer>> Cuda::make_layers(std::span<const LayerSpec> specs,
                                                                        std::span<const Shape> shapes,
                                                                        Generator& generator) {
    input_ = form_of_input(specs, shapes[0]);
    output_ = input_;
    std::vector<std::unique_ptr<Layer>> layers;
    for (std::size_t i = 0; i < specs.size(); ++i) {
        layers.push_back(make_layer(specs, i, generator));
        output_ = layers.back()->output_form();
        for (Parameter* parameter : layers.back()->parameters()) parameters_.push_back(parameter);
    }
    return layers;
}

DPTK_INLINE Cuda::Activation Cuda::wrap(const Tensor& input) {
    if (context_->type() == DType::bf16) {
        converted_.clear();
        for (Parameter* parameter : parameters_)
            converted_.push_back({parameter->values().data(), parameter->copy(), parameter->count()});
        cuda::kernels::convert_all(converted_, context_->stream());
    }
    return to_activation(input, input_, inputs_);
}

DPTK_INLINE Cuda::Activation Cuda::wrap_gradient(const Tensor& output_gradient) {
    return to_activation(output_gradient, output_, gradients_);
}

DPTK_INLINE void Cuda::store(const Activation& activation, Tensor& out) {
    const cuda::Form& form = activation.form;
    cuda::kernels::from_channels_last(activation.data, context_->type(), out.data(), activation.n,
                                      form.channels, form.padded, form.pixels(), context_->stream());
}

DPTK_INLINE cuda::Form Cuda::form_of_input(std::span<const LayerSpec> specs, const Shape& shape) const {
    const bool is_image = dptk::detail::any_of(specs, [](const LayerSpec& spec) {
        return std::holds_alternative<Conv2d>(spec) || std::holds_alternative<MaxPool2d>(spec);
    });
    if (is_image) return {shape[0], context_->padded_channels(shape[0]), shape[1], shape[2]};
    return {element_count(shape), element_count(shape)};
}

DPTK_INLINE std::unique_ptr<Cuda::Layer> Cuda::make_layer(std::span<const LayerSpec> specs, std::size_t i,
                                                          Generator& generator) {
    std::string label = dptk::detail::text("layer ", i, " (", layer_name(specs[i]), ")");
    cuda::Activate activate = cuda::Activate::none;
    if (has_at<ReLU>(specs, i + 1))
        activate =
            has_at<MaxPool2d>(specs, i + 2) ? cuda::Activate::relu_masked_by_pool : cuda::Activate::relu;
    if (const auto* linear = std::get_if<Linear>(&specs[i]))
        return std::make_unique<cuda::LinearLayer>(*context_, label, *linear, output_, activate, generator);
    if (const auto* conv = std::get_if<Conv2d>(&specs[i]))
        return std::make_unique<cuda::Conv2dLayer>(*context_, label, *conv, output_, activate, generator);
    if (const auto* pool = std::get_if<MaxPool2d>(&specs[i]))
        return std::make_unique<cuda::MaxPool2dLayer>(*context_, label, *pool, output_,
                                                      i > 0 && has_at<ReLU>(specs, i - 1));
    const bool is_fused = i > 0 && (has_at<Linear>(specs, i - 1) || has_at<Conv2d>(specs, i - 1));
    if (has_at<ReLU>(specs, i) && !is_fused)
        return std::make_unique<cuda::ReLULayer>(*context_, label, output_);
    return std::make_unique<cuda::IdentityLayer>(*context_, label, output_);
}

DPTK_INLINE Cuda::Activation Cuda::to_activation(const Tensor& tensor, const cuda::Form& form,
                                                 cuda::ActivationBuffer& buffer) {
    const Activation out = buffer.get(*context_, tensor.shape()[0], form);
    cuda::kernels::to_channels_last(tensor.data(), out.data, context_->type(), out.n, form.channels,
                                    form.padded, form.pixels(), context_->stream());
    return out;
}

}  // namespace DPTK_NAMESPACE::nn
