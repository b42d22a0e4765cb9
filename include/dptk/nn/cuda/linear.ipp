#pragma once

#include "dptk/nn/cuda/linear.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE LinearPlan::LinearPlan(Layer& layer, const Layout& input)
    : WeightedPlan(layer, input),
      forward_(context(), {.rows = input.n,
                           .columns = output.form.elements(),
                           .inner = input.form.elements(),
                           .b = Side::transposed,
                           .result = context().type(),
                           .epilogue = has_relu() ? Epilogue::bias_and_relu : Epilogue::bias}),
      gradients_(context(), {.rows = output.form.elements(),
                             .columns = input.form.elements(),
                             .inner = input.n,
                             .a = Side::transposed}),
      backward_input_(context(), {.rows = input.n,
                                  .columns = input.form.elements(),
                                  .inner = output.form.elements(),
                                  .result = context().type()}) {}

DPTK_INLINE void LinearPlan::do_forward(const Arguments& arguments) {
    forward_.run(arguments.inputs[0]->data, weight().operand(), arguments.output->data, bias().operand());
}

DPTK_INLINE void LinearPlan::do_backward_weight(const Arguments& arguments) {
    gradients_.run(arguments.output_gradient->data, arguments.inputs[0]->data, weight().gradient().data());
}

DPTK_INLINE void LinearPlan::do_backward_inputs(const Arguments& arguments) {
    backward_input_.run(arguments.output_gradient->data, weight().operand(),
                        arguments.input_gradients[0]->data);
}

}  // namespace DPTK_NAMESPACE::nn::cuda
