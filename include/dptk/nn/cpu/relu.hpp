/// ReLU over oneDNN's eltwise, over its input where that is allowed. Backward looks at the output, not at the
/// input, and so needs no copy of the latter.
#pragma once

#include <string>

#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"

namespace dptk::nn::cpu {

class ReLULayer final : public Layer {
  public:
    ReLULayer(const Context& context, const std::string& label, const Layout& nominal_input)
        : Layer(context, label), nominal_(nominal_input) {}

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    using Forward = dnnl::eltwise_forward;
    using Backward = dnnl::eltwise_backward;

    struct Plan {
        Layout layout;
        Forward::primitive_desc described;
        Operation forward;
        dnnl::memory own_output;
        dnnl::memory output;
        Operation backward;
        dnnl::memory own_gradient;
        Converter output_gradient;
    };

    Plan make_plan(const Layout& layout) {
        Plan plan;
        plan.layout = layout;
        plan.described = describe_relu(context().engine, layout);
        plan.own_output = unbound(context(), layout);
        plan.forward = Operation(context(), Forward(plan.described), plan.described, {});
        return plan;
    }

    Activation do_forward(const Activation& input) override {
        Plan& plan = plans_.select(input.layout(), [&] { return make_plan(input.layout()); });
        Activation output = input.overwritable ? input : outputs_.in(plan.own_output);
        plan.output = output.memory;
        plan.forward.set(DNNL_ARG_SRC, input.memory).set(DNNL_ARG_DST, output.memory).run();
        return output;
    }

    Activation do_backward_input(const Activation& output_gradient) override {
        Plan& plan = plans_.current();
        if (!plan.backward) {
            const auto described = describe_relu_backward(context().engine, plan.layout, plan.described);
            plan.backward = Operation(context(), Backward(described), described, {});
            plan.own_gradient = unbound(context(), plan.layout);
        }
        const dnnl::memory& given = plan.output_gradient(context(), output_gradient.memory, plan.layout);
        const bool in_place = output_gradient.overwritable && output_gradient.layout() == plan.layout;
        Activation result = in_place ? output_gradient : input_gradients_.in(plan.own_gradient);
        plan.backward.set(DNNL_ARG_DST, plan.output)
            .set(DNNL_ARG_DIFF_DST, given)
            .set(DNNL_ARG_DIFF_SRC, result.memory)
            .run();
        return result;
    }

    Layout nominal_;
    Plans<Plan> plans_;
    Results outputs_;
    Results input_gradients_;
};

}  // namespace dptk::nn::cpu
