#pragma once

#include "dptk/nn/cuda/max_pool.hpp"

#include <utility>

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE MaxPool2dLayer::MaxPool2dLayer(Context& context, std::string label, const MaxPool2d& spec,
                                           const Form& input, bool after_relu)
    : Layer(context, std::move(label),
            {input.channels, input.padded, input.height / spec.kernel_size, input.width / spec.kernel_size}),
      window_(spec.kernel_size),
      after_relu_(after_relu) {}

DPTK_INLINE kernels::Pool MaxPool2dLayer::pool() const noexcept {
    const Form& form = input_.form;
    return {input_.n, form.height, form.width, form.padded, window_};
}

DPTK_INLINE Activation MaxPool2dLayer::do_forward(const Activation& input) {
    input_ = input;
    const Activation output = outputs_.get(context(), input.n, output_form());
    kernels::max_pool(input.data, output.data, context().type(), pool(), context().stream());
    return output;
}

DPTK_INLINE Activation MaxPool2dLayer::do_backward_input(const Activation& gradient) {
    const Activation result = input_gradients_.get(context(), gradient.n, input_.form);
    kernels::max_pool_backward(input_.data, gradient.data, result.data, context().type(), pool(), after_relu_,
                               context().stream());
    return result;
}

}  // namespace DPTK_NAMESPACE::nn::cuda
