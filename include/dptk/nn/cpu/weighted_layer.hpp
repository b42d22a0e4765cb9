/// The common part of Linear and Conv2d on oneDNN: a weight, a bias, and three passes. The template argument
/// Passes describes each pass as one primitive. Memory is copied between layouts if passes need different
/// layouts.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/operation.hpp"
#include "dptk/nn/cpu/parameter.hpp"
#include "dptk/nn/cpu/reorder.hpp"
#include "dptk/nn/initialize.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// A layer with a weight and a bias. Passes has:
/// - `Forward`: the primitive of the forward pass
/// - `weight_shape()`: PyTorch's shape of the weight, outputs first
/// - `weight_dims(input)`: the weight's dimensions in oneDNN, for inputs with the layout `input`
/// - `describe_forward(input, weight)`: the forward pass, for inputs and a weight of these layouts
/// - `describe_gradients(forward)`, `describe_backward_input(forward)`: the corresponding backward passes
template <class Passes>
class WeightedLayer final : public Layer {
  public:
    WeightedLayer(const Context& context, const std::string& label, Passes passes,
                  const Layout& nominal_input, Generator& generator)
        : Layer(context, label),
          passes_(std::move(passes)),
          nominal_(translate_errors(label, [&] { return describe_nominal(nominal_input); })),
          weight_(this->context(), "weight", passes_.weight_shape(), nominal_.weights_desc(), fan_in(),
                  generator),
          bias_(this->context(), "bias", {passes_.weight_shape()[0]}, nominal_.bias_desc(), fan_in(),
                generator) {}

    std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

    [[nodiscard]] Layout nominal_output() const override { return nominal_.dst_desc(); }

  private:
    using ForwardDescription = typename Passes::Forward::primitive_desc;

    struct Plan {
        ForwardDescription described;
        Converter to_source;
        /// The input in the layout of the forward primitive, which the backward passes mostly use too.
        dnnl::memory source;
        Operation forward;
        dnnl::memory output;
        ParameterGradients gradients;
        Converter output_gradient;
        Converter weight;
        Operation backward_input;
        dnnl::memory input_gradient;
    };

    [[nodiscard]] ForwardDescription describe_nominal(const Layout& input) const {
        return passes_.describe_forward(input, any_layout(passes_.weight_dims(input)));
    }

    /// Returns the number of inputs of one output.
    [[nodiscard]] std::size_t fan_in() const {
        return element_count(passes_.weight_shape()) / passes_.weight_shape()[0];
    }

    Plan plan_forward(const Layout& input) {
        Plan plan;
        plan.described = passes_.describe_forward(input, weight_.value_memory().get_desc());
        plan.to_source = Converter(context(), input, plan.described.src_desc());
        plan.output = unbound(context(), plan.described.dst_desc());
        plan.forward = Operation(context(), plan.described,
                                 {{DNNL_ARG_WEIGHTS, weight_.value_memory()},
                                  {DNNL_ARG_BIAS, bias_.value_memory()},
                                  {DNNL_ARG_DST, plan.output}});
        return plan;
    }

    void plan_backward_input(Plan& plan, const Layout& output_gradient) {
        const auto described = passes_.describe_backward_input(plan.described);
        plan.output_gradient = Converter(context(), output_gradient, described.diff_dst_desc());
        plan.weight = Converter(context(), weight_.value_memory().get_desc(), described.weights_desc());
        plan.input_gradient = unbound(context(), described.diff_src_desc());
        plan.backward_input = Operation(context(), described, {{DNNL_ARG_DIFF_SRC, plan.input_gradient}});
    }

    Activation do_forward(const Activation& input) override {
        Plan& plan = plans_.select(input, [&](const Layout& layout) { return plan_forward(layout); });
        plan.source = plan.to_source(input.memory);
        Activation output = outputs_.in(plan.output);
        plan.forward.set(DNNL_ARG_SRC, plan.source).run();
        return output;
    }

    void do_backward_parameters(const Activation& output_gradient) override {
        Plan& plan = plans_.current();
        if (!plan.gradients) {
            const Layout source = plan.described.src_desc();
            plan.gradients = ParameterGradients(context(), passes_.describe_gradients(plan.described), source,
                                                output_gradient.layout(), weight_, bias_);
        }
        plan.gradients.run(plan.source, output_gradient.memory);
    }

    Activation do_backward_input(const Activation& output_gradient) override {
        Plan& plan = plans_.current();
        if (!plan.backward_input) plan_backward_input(plan, output_gradient.layout());
        Activation result = input_gradients_.in(plan.input_gradient);
        plan.backward_input.set(DNNL_ARG_DIFF_DST, plan.output_gradient(output_gradient.memory))
            .set(DNNL_ARG_WEIGHTS, plan.weight(weight_.value_memory()))
            .run();
        return result;
    }

    Passes passes_;
    ForwardDescription nominal_;
    Parameter weight_;
    Parameter bias_;
    Plans<Plan> plans_;
    Results outputs_;
    Results input_gradients_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
