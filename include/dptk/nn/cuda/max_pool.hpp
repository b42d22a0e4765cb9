/// MaxPool2d on channels-last images.
#pragma once

#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

/// After a ReLU, input values of zero get no gradient, so that this plan also applies the ReLU's backward
/// pass.
class MaxPool2dPlan final : public Plan {
  public:
    MaxPool2dPlan(Layer& layer, const Layout& input)
        : Plan(layer, input),
          pool_{.n = input.n,
                .height = input.form.height,
                .width = input.form.width,
                .channels = input.form.padded,
                .window = std::get<MaxPool2d>(layer.info().operation).kernel_size.height} {
        use.keeps_inputs = true;
    }

    std::vector<Layout> plan_backward(const Layout& /*output_gradient*/) override {
        return {{.n = input().n, .form = input().form, .is_masked = layer().is_after_relu()}};
    }

  private:
    void do_forward(const Arguments& arguments) override {
        kernels::max_pool(arguments.inputs[0]->data, arguments.output->data, context().type(), pool_,
                          context().stream());
    }

    void do_backward_inputs(const Arguments& arguments) override {
        kernels::max_pool_backward(arguments.inputs[0]->data, arguments.output_gradient->data,
                                   arguments.input_gradients[0]->data, context().type(), pool_,
                                   layer().is_after_relu(), context().stream());
    }

    kernels::Pool pool_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda
