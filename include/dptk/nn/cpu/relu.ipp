#pragma once

#include "dptk/nn/cpu/relu.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE ReLULayer::Plan ReLULayer::plan_forward(const Layout& layout) {
    Plan plan;
    plan.described = describe_relu(context().engine, layout);
    plan.own_output = unbound(context(), layout);
    plan.own_gradient = unbound(context(), layout);
    if (before_ == PostOp::none) plan.forward = Operation(context(), plan.described, {});
    return plan;
}

DPTK_INLINE void ReLULayer::plan_backward(Plan& plan, const Layout& output_gradient) {
    const Layout layout = plan.output.get_desc();
    plan.output_gradient = Converter(context(), output_gradient, layout);
    plan.backward =
        Operation(context(), describe_relu_backward(context().engine, layout, plan.described), {});
}

DPTK_INLINE Activation ReLULayer::do_forward(const Activation& input) {
    Plan& plan = plans_.select(input, [&](const Layout& layout) { return plan_forward(layout); });
    Activation output = input.overwritable ? input : outputs_.in(plan.own_output);
    plan.output = output.memory;
    if (plan.forward) plan.forward.set(DNNL_ARG_SRC, input.memory).set(DNNL_ARG_DST, output.memory).run();
    return output;
}

DPTK_INLINE Activation ReLULayer::do_backward_input(const Activation& output_gradient) {
    Plan& plan = plans_.current();
    if (!plan.backward) plan_backward(plan, output_gradient.layout());
    const Activation given = plan.output_gradient(output_gradient);
    Activation result = given.overwritable ? given : input_gradients_.in(plan.own_gradient);
    plan.backward.set(DNNL_ARG_DST, plan.output)
        .set(DNNL_ARG_DIFF_DST, given.memory)
        .set(DNNL_ARG_DIFF_SRC, result.memory)
        .run();
    return result;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
