/// MaxPool2d over oneDNN's pooling, in the layout of its input; the workspace remembers where each maximum
/// was.
#pragma once

#include <cstddef>
#include <string>

#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/operation.hpp"
#include "dptk/nn/cpu/reorder.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn::cpu {

class MaxPool2dLayer final : public Layer {
  public:
    /// \param input the shape of a sample, {channels, height, width}
    MaxPool2dLayer(const Context& context, const std::string& label, const MaxPool2d& spec,
                   const Shape& input, const Layout& nominal_input)
        : Layer(context, label),
          kernel_(2, static_cast<dnnl::memory::dim>(spec.kernel_size)),
          out_(nn::output_shape(spec, input)),
          nominal_(translate_errors(label, [&] { return describe_forward(nominal_input).dst_desc(); })) {}

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    struct Plan {
        PoolingForward::primitive_desc described;
        Operation forward;
        dnnl::memory output;
        dnnl::memory workspace;
        Converter output_gradient;
        Operation backward;
        dnnl::memory input_gradient;
    };

    [[nodiscard]] PoolingForward::primitive_desc describe_forward(const Layout& input) const {
        Dims output = dims_of(input);
        output[2] = static_cast<dnnl::memory::dim>(out_[1]);
        output[3] = static_cast<dnnl::memory::dim>(out_[2]);
        return describe<PoolingForward>(context().engine, PostOp::none, dnnl::prop_kind::forward_training,
                                        dnnl::algorithm::pooling_max, input, any_layout(output), kernel_,
                                        kernel_, no_dilation_, no_padding_, no_padding_);
    }

    Plan plan_forward(const Layout& input) {
        Plan plan;
        plan.described = describe_forward(input);
        plan.output = unbound(context(), plan.described.dst_desc());
        plan.workspace = dnnl::memory(plan.described.workspace_desc(), context().engine);
        plan.forward = Operation(context(), plan.described,
                                 {{DNNL_ARG_DST, plan.output}, {DNNL_ARG_WORKSPACE, plan.workspace}});
        return plan;
    }

    void plan_backward(Plan& plan, const Layout& output_gradient) {
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

    Activation do_forward(const Activation& input) override {
        Plan& plan = plans_.select(input, [&](const Layout& layout) { return plan_forward(layout); });
        Activation output = outputs_.in(plan.output);
        plan.forward.set(DNNL_ARG_SRC, input.memory).run();
        return output;
    }

    Activation do_backward_input(const Activation& output_gradient) override {
        Plan& plan = plans_.current();
        if (!plan.backward) plan_backward(plan, output_gradient.layout());
        Activation result = input_gradients_.in(plan.input_gradient);
        plan.backward.set(DNNL_ARG_DIFF_DST, plan.output_gradient(output_gradient.memory)).run();
        return result;
    }

    Dims kernel_;
    Dims no_dilation_ = {0, 0};
    Dims no_padding_ = {0, 0};
    Shape out_;
    Layout nominal_;
    Plans<Plan> plans_;
    Results outputs_;
    Results input_gradients_;
};

}  // namespace dptk::nn::cpu
