#pragma once

#include "dptk/nn/cuda/relu.hpp"

#include "dptk/nn/cuda/kernels.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE std::size_t ReLULayer::elements(const Activation& activation) const noexcept {
    return activation.n * activation.form.elements();
}

DPTK_INLINE Activation ReLULayer::do_forward(const Activation& input) {
    output_ = outputs_.get(context(), input.n, input.form);
    kernels::relu(input.data, output_.data, context().type(), elements(input), context().stream());
    return output_;
}

DPTK_INLINE Activation ReLULayer::do_backward_input(const Activation& gradient) {
    kernels::relu_backward(output_.data, gradient.data, context().type(), elements(gradient),
                           context().stream());
    return gradient;
}

}  // namespace DPTK_NAMESPACE::nn::cuda
