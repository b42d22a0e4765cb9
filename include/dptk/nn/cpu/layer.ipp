#pragma once

#include "dptk/nn/cpu/layer.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Layer::Layer(const Context& context, std::string label)
    : context_(context), label_(std::move(label)) {}

DPTK_INLINE Activation Layer::forward(const Activation& input) {
    return translate_errors(label_, [&] { return do_forward(input); });
}

DPTK_INLINE void Layer::backward_parameters(const Activation& output_gradient) {
    translate_errors(label_, [&] { do_backward_parameters(output_gradient); });
}

DPTK_INLINE Activation Layer::backward_input(const Activation& output_gradient) {
    return translate_errors(label_, [&] { return do_backward_input(output_gradient); });
}

}  // namespace DPTK_NAMESPACE::nn::cpu
