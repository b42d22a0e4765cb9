#pragma once

#include "dptk/nn/cuda/layer.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE Activation ActivationBuffer::get(Context& context, std::size_t n, const Form& form) {
    const std::size_t bytes = n * form.elements() * context.type_size();
    if (bytes > memory_.size()) {
        memory_ = DeviceBuffer<std::byte>(bytes);
        context.note_reallocation();
    }
    return {memory_.data(), n, form};
}

DPTK_INLINE Layer::Layer(Context& context, std::string label, const Form& output)
    : context_(context), label_(std::move(label)), output_(output) {}

DPTK_INLINE Activation Layer::forward(const Activation& input) {
    return with_name(label_, [&] { return do_forward(input); });
}

DPTK_INLINE void Layer::backward_parameters(const Activation& output_gradient) {
    with_name(label_, [&] { do_backward_parameters(output_gradient); });
}

DPTK_INLINE Activation Layer::backward_input(const Activation& output_gradient) {
    return with_name(label_, [&] { return do_backward_input(output_gradient); });
}

}  // namespace DPTK_NAMESPACE::nn::cuda
