/// ReLU over oneDNN's eltwise, over its input where that is allowed. Behind a Linear or a Conv2d it is
/// computed with that layer's output, which saves a pass over it. Backward looks at the output, not at the
/// input, and so needs no copy of the latter.
#pragma once

#include <string>

#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/operation.hpp"
#include "dptk/nn/cpu/reorder.hpp"

namespace dptk::nn::cpu {

class ReLULayer final : public Layer {
  public:
    /// \param before what the layer before does to its output; with PostOp::relu forward has nothing to do
    ReLULayer(const Context& context, const std::string& label, const Layout& nominal_input, PostOp before)
        : Layer(context, label), before_(before), nominal_(nominal_input) {}

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    struct Plan {
        dnnl::eltwise_forward::primitive_desc described;
        Operation forward;
        dnnl::memory own_output;
        dnnl::memory output;
        Converter output_gradient;
        Operation backward;
        dnnl::memory own_gradient;
    };

    Plan plan_forward(const Layout& layout) {
        Plan plan;
        plan.described = describe_relu(context().engine, layout);
        plan.own_output = unbound(context(), layout);
        plan.own_gradient = unbound(context(), layout);
        if (before_ == PostOp::none) plan.forward = Operation(context(), plan.described, {});
        return plan;
    }

    void plan_backward(Plan& plan, const Layout& output_gradient) {
        const Layout layout = plan.output.get_desc();
        plan.output_gradient = Converter(context(), output_gradient, layout);
        plan.backward =
            Operation(context(), describe_relu_backward(context().engine, layout, plan.described), {});
    }

    Activation do_forward(const Activation& input) override {
        Plan& plan = plans_.select(input, [&](const Layout& layout) { return plan_forward(layout); });
        Activation output = input.overwritable ? input : outputs_.in(plan.own_output);
        plan.output = output.memory;
        if (plan.forward) plan.forward.set(DNNL_ARG_SRC, input.memory).set(DNNL_ARG_DST, output.memory).run();
        return output;
    }

    Activation do_backward_input(const Activation& output_gradient) override {
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

    PostOp before_;
    Layout nominal_;
    Plans<Plan> plans_;
    Results outputs_;
    Results input_gradients_;
};

}  // namespace dptk::nn::cpu
