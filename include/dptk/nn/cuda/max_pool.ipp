#pragma once

#include "dptk/nn/cuda/max_pool.hpp"

#include <variant>

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE MaxPool2dPlan::MaxPool2dPlan(Layer& layer, const Layout& input)
    : Plan(layer, input),
      pool_{.n = input.n,
            .height = input.form.height,
            .width = input.form.width,
            .channels = input.form.padded,
            .window = std::get<MaxPool2d>(layer.info().operation).kernel_size.height} {
    use.keeps_inputs = true;
}

DPTK_INLINE std::vector<Layout> MaxPool2dPlan::plan_backward(const Layout& /*output_gradient*/) {
    return {{.n = input().n, .form = input().form, .is_masked = layer().is_after_relu()}};
}

DPTK_INLINE void MaxPool2dPlan::do_forward(const Arguments& arguments) {
    kernels::max_pool(arguments.inputs[0]->data, arguments.output->data, context().type(), pool_,
                      context().stream());
}

DPTK_INLINE void MaxPool2dPlan::do_backward_inputs(const Arguments& arguments) {
    kernels::max_pool_backward(arguments.inputs[0]->data, arguments.output_gradient->data,
                               arguments.input_gradients[0]->data, context().type(), pool_,
                               layer().is_after_relu(), context().stream());
}

}  // namespace DPTK_NAMESPACE::nn::cuda
