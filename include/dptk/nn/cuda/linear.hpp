/// Linear with cuBLASLt. Bias and ReLU are fused with the matrix product.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/matrix_product.hpp"
#include "dptk/nn/cuda/weighted_plan.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class LinearPlan final : public WeightedPlan {
  public:
    LinearPlan(Layer& layer, const Layout& input)
        : WeightedPlan(layer, input),
          forward_(context(), {.rows = input.n,
                               .columns = output.form.elements(),
                               .inner = input.form.elements(),
                               .b = Side::transposed,
                               .result = context().type(),
                               .has_bias = has_bias(),
                               .has_relu = has_relu()}),
          gradients_(context(), {.rows = output.form.elements(),
                                 .columns = input.form.elements(),
                                 .inner = input.n,
                                 .a = Side::transposed}),
          backward_input_(context(), {.rows = input.n,
                                      .columns = input.form.elements(),
                                      .inner = output.form.elements(),
                                      .result = context().type()}) {}

  private:
    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        forward_.run(arguments.inputs[0]->data, weight().operand(), arguments.output->data, bias());
    }

    void do_backward_weight(const Arguments& arguments) override {
        gradients_.run(gradient(arguments), arguments.inputs[0]->data, weight().gradient().data());
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
        backward_input_.run(gradient(arguments), weight().operand(), arguments.input_gradients[0]->data);
    }

    MatrixProduct forward_;
    MatrixProduct gradients_;
    MatrixProduct backward_input_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda
