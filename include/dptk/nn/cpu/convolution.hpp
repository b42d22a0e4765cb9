/// Conv2d over oneDNN's convolution. Each pass works in the layouts that oneDNN chooses for it, since forcing
/// one can throw it back on its plain loops; copies between them cost little and are made only where layouts
/// differ.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/parameter.hpp"
#include "dptk/nn/initialise.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn::cpu {

class Conv2dLayer final : public Layer {
  public:
    /// \param input the shape of a sample, {channels, height, width}
    Conv2dLayer(const Context& context, const std::string& label, const Conv2d& spec, const Shape& input,
                const Layout& nominal_input, Generator& generator)
        : Layer(context, label),
          spec_(spec),
          out_(nn::output_shape(spec, input)),
          nominal_(translate_errors(
              label, [&] { return describe_forward(nominal_input, any_layout(weight_dims(input))); })),
          weight_(this->context(), "weight",
                  {spec.out_channels, input[0], spec.kernel_size, spec.kernel_size}, nominal_.weights_desc(),
                  fan_in(input), generator),
          bias_(this->context(), "bias", {spec.out_channels}, nominal_.bias_desc(), fan_in(input),
                generator) {}

    std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

    [[nodiscard]] Layout nominal_output() const override { return nominal_.dst_desc(); }

  private:
    using Forward = dnnl::convolution_forward;
    using BackwardInput = dnnl::convolution_backward_data;
    using BackwardParameters = dnnl::convolution_backward_weights;

    struct Plan {
        Forward::primitive_desc described;
        Operation forward;
        dnnl::memory output;
        Converter source;
        dnnl::memory input;
        ParameterGradients<BackwardParameters> gradients;
        BackwardInput::primitive_desc input_described;
        Operation backward_input;
        dnnl::memory input_gradient;
        Converter output_gradient;
        Converter weight;
    };

    static dnnl::memory::dim dim(std::size_t size) { return static_cast<dnnl::memory::dim>(size); }

    [[nodiscard]] std::size_t fan_in(const Shape& input) const {
        return input[0] * spec_.kernel_size * spec_.kernel_size;
    }

    [[nodiscard]] Dims weight_dims(const Shape& input) const {
        return {dim(spec_.out_channels), dim(input[0]), dim(spec_.kernel_size), dim(spec_.kernel_size)};
    }

    [[nodiscard]] Dims output_dims(const Layout& input) const {
        return {dims_of(input)[0], dim(out_[0]), dim(out_[1]), dim(out_[2])};
    }

    [[nodiscard]] Dims strides() const { return {dim(spec_.stride), dim(spec_.stride)}; }

    [[nodiscard]] Dims padding() const { return {dim(spec_.padding), dim(spec_.padding)}; }

    [[nodiscard]] Forward::primitive_desc describe_forward(const Layout& input, const Layout& weight) const {
        return describe<Forward>(context().engine, dnnl::prop_kind::forward_training,
                                 dnnl::algorithm::convolution_direct, any_layout(dims_of(input)), weight,
                                 any_layout({dim(out_[0])}), any_layout(output_dims(input)), strides(),
                                 padding(), padding());
    }

    [[nodiscard]] BackwardParameters::primitive_desc describe_gradients(const Plan& plan) const {
        return describe_backward<BackwardParameters>(
            context().engine, plan.described, dnnl::algorithm::convolution_direct,
            any_layout(dims_of(plan.described.src_desc())),
            any_layout(dims_of(plan.described.weights_desc())), any_layout({dim(out_[0])}),
            any_layout(dims_of(plan.described.dst_desc())), strides(), padding(), padding());
    }

    [[nodiscard]] BackwardInput::primitive_desc describe_backward_input(const Plan& plan) const {
        return describe_backward<BackwardInput>(
            context().engine, plan.described, dnnl::algorithm::convolution_direct,
            any_layout(dims_of(plan.described.src_desc())),
            any_layout(dims_of(plan.described.weights_desc())),
            any_layout(dims_of(plan.described.dst_desc())), strides(), padding(), padding());
    }

    Plan make_plan(const Layout& input) {
        Plan plan;
        plan.described = describe_forward(input, weight_.value_memory().get_desc());
        plan.output = unbound(context(), plan.described.dst_desc());
        plan.forward = Operation(context(), Forward(plan.described), plan.described,
                                 {{DNNL_ARG_WEIGHTS, weight_.value_memory()},
                                  {DNNL_ARG_BIAS, bias_.value_memory()},
                                  {DNNL_ARG_DST, plan.output}});
        return plan;
    }

    Activation do_forward(const Activation& input) override {
        Plan& plan = plans_.select(input.layout(), [&] { return make_plan(input.layout()); });
        // Kept for backward as the primitive reads it, which is what that reads too, mostly.
        plan.input = plan.source(context(), input.memory, plan.described.src_desc());
        Activation output = outputs_.in(plan.output);
        plan.forward.set(DNNL_ARG_SRC, plan.input).run();
        return output;
    }

    void do_backward_parameters(const Activation& output_gradient) override {
        Plan& plan = plans_.current();
        if (!plan.gradients) plan.gradients = {context(), describe_gradients(plan), weight_, bias_};
        plan.gradients.run(context(), plan.input, output_gradient.memory, weight_);
    }

    Activation do_backward_input(const Activation& output_gradient) override {
        Plan& plan = plans_.current();
        if (!plan.backward_input) {
            plan.input_described = describe_backward_input(plan);
            plan.input_gradient = unbound(context(), plan.input_described.diff_src_desc());
            plan.backward_input = Operation(context(), BackwardInput(plan.input_described),
                                            plan.input_described, {{DNNL_ARG_DIFF_SRC, plan.input_gradient}});
        }
        const auto& described = plan.input_described;
        Activation result = input_gradients_.in(plan.input_gradient);
        plan.backward_input
            .set(DNNL_ARG_DIFF_DST,
                 plan.output_gradient(context(), output_gradient.memory, described.diff_dst_desc()))
            .set(DNNL_ARG_WEIGHTS, plan.weight(context(), weight_.value_memory(), described.weights_desc()))
            .run();
        return result;
    }

    Conv2d spec_;
    Shape out_;
    Forward::primitive_desc nominal_;
    Parameter weight_;
    Parameter bias_;
    Plans<Plan> plans_;
    Results outputs_;
    Results input_gradients_;
};

}  // namespace dptk::nn::cpu
