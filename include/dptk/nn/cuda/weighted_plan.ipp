#pragma once

#include "dptk/nn/cuda/weighted_plan.hpp"

#include "dptk/nn/cuda/kernels.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE WeightedPlan::WeightedPlan(Layer& layer, const Layout& input) : Plan(layer, input) {
    use.keeps_inputs = true;
}

DPTK_INLINE std::vector<Layout> WeightedPlan::plan_backward(const Layout& output_gradient) {
    use.keeps_output = has_relu() && !output_gradient.is_masked;
    const std::size_t scratch =
        kernels::bias_gradient_scratch(output.n * output.form.pixels(), output.form.padded, context().type());
    workspaces.push_back({scratch_, scratch * sizeof(float), nn::detail::WorkspaceUse::backward});
    return {input()};
}

DPTK_INLINE void WeightedPlan::do_backward_parameters(const Arguments& arguments) {
    kernels::bias_gradient(arguments.output_gradient->data,
                           use.keeps_output ? arguments.output->data : nullptr, context().type(),
                           output.n * output.form.pixels(), output.form.padded, bias().gradient().data(),
                           static_cast<float*>(scratch_->data), context().stream());
    do_backward_weight(arguments);
}

}  // namespace DPTK_NAMESPACE::nn::cuda
