/// Linear over oneDNN's inner product. After convolutions it takes their blocked images as they are, with a
/// weight blocked to match, so that Flatten costs nothing.
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

class LinearLayer final : public Layer {
  public:
    /// \param in_features the product of the dimensions of `nominal_input` after the first
    LinearLayer(const Context& context, const std::string& label, const Linear& spec, std::size_t in_features,
                const Layout& nominal_input, Generator& generator)
        : Layer(context, label),
          out_(static_cast<dnnl::memory::dim>(spec.out_features)),
          nominal_(translate_errors(
              label,
              [&] { return describe_forward(nominal_input, any_layout(weight_dims(nominal_input))); })),
          weight_(this->context(), "weight", {spec.out_features, in_features}, nominal_.weights_desc(),
                  in_features, generator),
          bias_(this->context(), "bias", {spec.out_features}, nominal_.bias_desc(), in_features, generator) {}

    std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

    [[nodiscard]] Layout nominal_output() const override { return nominal_.dst_desc(); }

  private:
    using Forward = dnnl::inner_product_forward;
    using BackwardInput = dnnl::inner_product_backward_data;
    using BackwardParameters = dnnl::inner_product_backward_weights;

    struct Plan {
        Forward::primitive_desc described;
        Operation forward;
        dnnl::memory output;
        Converter source;
        dnnl::memory source_in_use;
        ParameterGradients<BackwardParameters> gradients;
        BackwardInput::primitive_desc input_described;
        Operation backward_input;
        dnnl::memory input_gradient;
        Converter output_gradient;
        Converter weight;
    };

    [[nodiscard]] Dims weight_dims(const Layout& input) const {
        Dims dims = dims_of(input);
        dims[0] = out_;
        return dims;
    }

    /// The layouts of a pass: of the source, the weight and the output, or of their gradients.
    struct Layouts {
        Layout source;
        Layout weight;
        Layout output;
    };

    [[nodiscard]] static Layouts free_layouts(const Forward::primitive_desc& forward) {
        return {any_layout(dims_of(forward.src_desc())), any_layout(dims_of(forward.weights_desc())),
                any_layout(dims_of(forward.dst_desc()))};
    }

    [[nodiscard]] Forward::primitive_desc describe_forward(const Layout& input, const Layout& weight) const {
        const auto from = [&](const Layout& source) {
            return describe<Forward>(context().engine, dnnl::prop_kind::forward_training, source, weight,
                                     any_layout({out_}), any_layout({dims_of(input)[0], out_}));
        };
        return describe_fast([&] { return from(input); }, [&] { return from(any_layout(dims_of(input))); });
    }

    /// Backward passes keep to the layouts of the forward pass. With a free choice oneDNN takes others, and
    /// would have the weight copied at each step.
    template <class Describe>
    [[nodiscard]] static auto describe_like(const Forward::primitive_desc& forward, Describe&& with) {
        return describe_fast(
            [&] {
                return with(Layouts{forward.src_desc(), forward.weights_desc(), forward.dst_desc()});
            },
            [&] { return with(free_layouts(forward)); });
    }

    [[nodiscard]] BackwardParameters::primitive_desc describe_gradients(
        const Forward::primitive_desc& forward) const {
        return describe_like(forward, [&](const Layouts& layouts) {
            return describe_backward<BackwardParameters>(context().engine, forward, layouts.source,
                                                         layouts.weight, any_layout({out_}), layouts.output);
        });
    }

    [[nodiscard]] BackwardInput::primitive_desc describe_backward_input(
        const Forward::primitive_desc& forward) const {
        return describe_like(forward, [&](const Layouts& layouts) {
            return describe_backward<BackwardInput>(context().engine, forward, layouts.source, layouts.weight,
                                                    layouts.output);
        });
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
        plan.source_in_use = plan.source(context(), input.memory, plan.described.src_desc());
        Activation output = outputs_.in(plan.output);
        plan.forward.set(DNNL_ARG_SRC, plan.source_in_use).run();
        return output;
    }

    void do_backward_parameters(const Activation& output_gradient) override {
        Plan& plan = plans_.current();
        if (!plan.gradients) plan.gradients = {context(), describe_gradients(plan.described), weight_, bias_};
        plan.gradients.run(context(), plan.source_in_use, output_gradient.memory, weight_);
    }

    Activation do_backward_input(const Activation& output_gradient) override {
        Plan& plan = plans_.current();
        if (!plan.backward_input) {
            plan.input_described = describe_backward_input(plan.described);
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

    dnnl::memory::dim out_;
    Forward::primitive_desc nominal_;
    Parameter weight_;
    Parameter bias_;
    Plans<Plan> plans_;
    Results outputs_;
    Results input_gradients_;
};

}  // namespace dptk::nn::cpu
