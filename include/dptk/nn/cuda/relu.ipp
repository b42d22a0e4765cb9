#pragma once

#include "dptk/nn/cuda/relu.hpp"

#include "dptk/core/cuda/copy.hpp"
#include "dptk/nn/cuda/kernels.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE void ReLUPlan::do_forward(const Arguments& arguments) {
    kernels::relu(arguments.inputs[0]->data, arguments.output->data, context().type(), elements(),
                  context().stream());
}

DPTK_INLINE void ReLUPlan::do_backward_inputs(const Arguments& arguments) {
    void* const gradient = arguments.input_gradients[0]->data;
    if (gradient != arguments.output_gradient->data)
        dptk::cuda::detail::copy_bytes(gradient, arguments.output_gradient->data,
                                       elements() * context().type_size(), context().stream());
    kernels::relu_backward(arguments.output->data, gradient, context().type(), elements(),
                           context().stream());
}

}  // namespace DPTK_NAMESPACE::nn::cuda
