#pragma once

#include "dptk/nn/cpu/max_pool.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE MaxPool2dLayer::MaxPool2dLayer(const Context& context, const std::string& label,
                                           const MaxPool2d& spec, const Shape& input,
                                           const Layout& nominal_input)
    : Layer(context, label),
      kernel_(2, static_cast<dnnl::memory::dim>(spec.kernel_size)),
      out_(nn::output_shape(spec, input)),
      nominal_(translate_errors(label, [&] { return describe_forward(nominal_input).dst_desc(); })) {}

DPTK_INLINE PoolingForward::primitive_desc MaxPool2dLayer::describe_forward(const Layout& input) const {
    Dims output = dims_of(input);
    output[2] = static_cast<dnnl::memory::dim>(out_[1]);
    output[3] = static_cast<dnnl::memory::dim>(out_[2]);
    return describe<PoolingForward>(context().engine, PostOp::none, dnnl::prop_kind::forward_training,
                                    dnnl::algorithm::pooling_max, input, any_layout(output), kernel_, kernel_,
                                    no_dilation_, no_padding_, no_padding_);
}

DPTK_INLINE MaxPool2dLayer::Plan MaxPool2dLayer::plan_forward(const Layout& input) {
    Plan plan;
    plan.described = describe_forward(input);
    plan.output = unbound(context(), plan.described.dst_desc());
    plan.workspace = dnnl::memory(plan.described.workspace_desc(), context().engine);
    plan.forward = Operation(context(), plan.described,
                             {{DNNL_ARG_DST, plan.output}, {DNNL_ARG_WORKSPACE, plan.workspace}});
    return plan;
}

DPTK_INLINE void MaxPool2dLayer::plan_backward(Plan& plan, const Layout& output_gradient) {
    const Layout input = plan.described.src_desc();
    const Layout output = plan.described.dst_desc();
    const auto described = describe_backward<PoolingBackward>(
        context().engine, plan.described, dnnl::algorithm::pooling_max, input, output, kernel_, kernel_,
        no_dilation_, no_padding_, no_padding_);
    plan.output_gradient = Converter(context(), output_gradient, output);
    plan.input_gradient = unbound(context(), input);
    plan.backward =
        Operation(context(), described,
                  {{DNNL_ARG_WORKSPACE, plan.workspace}, {DNNL_ARG_DIFF_SRC, plan.input_gradient}});
}

DPTK_INLINE Activation MaxPool2dLayer::do_forward(const Activation& input) {
    Plan& plan = plans_.select(input, [&](const Layout& layout) { return plan_forward(layout); });
    Activation output = outputs_.in(plan.output);
    plan.forward.set(DNNL_ARG_SRC, input.memory).run();
    return output;
}

DPTK_INLINE Activation MaxPool2dLayer::do_backward_input(const Activation& output_gradient) {
    Plan& plan = plans_.current();
    if (!plan.backward) plan_backward(plan, output_gradient.layout());
    Activation result = input_gradients_.in(plan.input_gradient);
    plan.backward.set(DNNL_ARG_DIFF_DST, plan.output_gradient(output_gradient.memory)).run();
    return result;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
