/// The common part of Linear and Conv2d on oneDNN: a weight, perhaps a bias, and three passes. The template
/// argument Passes describes each pass as one primitive. Memory is copied between layouts if passes need
/// different layouts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/cpu/converter.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/parameter.hpp"
#include "dptk/nn/cpu/primitive.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// A layer with a weight and perhaps a bias. Passes has:
/// - `Forward`, `BackwardParameters`, `BackwardInput`: the primitives of the passes
/// - `weight_shape()`: PyTorch's shape of the weight, outputs first; `has_bias()`
/// - `weight_dims(input)`: the weight's dimensions in oneDNN, for inputs with the layout `input`
/// - `describe_forward(input, weight)`: the forward pass, for inputs and a weight of these layouts
/// - `describe_gradients(forward)`, `describe_backward_input(forward)`: the corresponding backward passes
template <class Passes>
class WeightedLayer final : public Layer {
  public:
    WeightedLayer(const Context& context, const Request& request, Passes passes)
        : Layer(context, request.info),
          passes_(std::move(passes)),
          nominal_(passes_.describe_forward(request.inputs[0],
                                            any_layout(passes_.weight_dims(request.inputs[0])))),
          weight_(context, passes_.weight_shape(), nominal_.weights_desc(), request.initial[0]) {
        if (passes_.has_bias())
            bias_.emplace(context, Shape{passes_.weight_shape()[0]}, nominal_.bias_desc(),
                          request.initial[1]);
    }

    std::vector<Parameter*> parameters() override {
        if (bias_) return {&weight_, &*bias_};
        return {&weight_};
    }

    [[nodiscard]] Layout nominal_output() const override { return nominal_.dst_desc(); }

  private:
    using Forward = typename Passes::Forward::primitive_desc;

    class WeightedPlan final : public Plan {
      public:
        WeightedPlan(WeightedLayer& layer, const Layout& input)
            : Plan(layer), layer_(layer), described_(layer.describe(input)) {
            output = described_.dst_desc();
            source_ = add_converter(input, described_.src_desc(), WorkspaceUse::kept);
            weight_ = add_converter(layer.weight_.value_memory().get_desc(), described_.weights_desc(),
                                    WorkspaceUse::forward);
            use.keeps_inputs = !source_.copies();
            forward_ = Primitive(context(), described_, {});
            if (layer.bias_) forward_.set(DNNL_ARG_BIAS, layer.bias_->value_memory());
        }

      private:
        std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
            const auto gradients = layer_.passes_.describe_gradients(described_);
            gradients_source_ =
                add_converter(described_.src_desc(), gradients.src_desc(), WorkspaceUse::backward);
            gradients_output_ =
                add_converter(output_gradient, gradients.diff_dst_desc(), WorkspaceUse::backward);
            // If the primitive writes weight gradients in another layout than the parameter's, they are
            // copied.
            dnnl::memory computed = layer_.weight_.gradient_memory();
            if (gradients.diff_weights_desc() != computed.get_desc()) {
                computed = add_workspace(gradients.diff_weights_desc(), WorkspaceUse::backward);
                copy_weight_ = reorder(context(), computed, layer_.weight_.gradient_memory());
            }
            backward_parameters_ = Primitive(context(), gradients, {{DNNL_ARG_DIFF_WEIGHTS, computed}});
            if (layer_.bias_) backward_parameters_.set(DNNL_ARG_DIFF_BIAS, layer_.bias_->gradient_memory());

            described_input_ = layer_.passes_.describe_backward_input(described_);
            input_output_ =
                add_converter(output_gradient, described_input_.diff_dst_desc(), WorkspaceUse::backward);
            input_weight_ = add_converter(layer_.weight_.value_memory().get_desc(),
                                          described_input_.weights_desc(), WorkspaceUse::backward);
            return {described_input_.diff_src_desc()};
        }

        void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
            forward_.set(DNNL_ARG_SRC, source_(arguments.inputs[0]))
                .set(DNNL_ARG_WEIGHTS, weight_(layer_.weight_.value_memory()))
                .set(DNNL_ARG_DST, arguments.output)
                .run();
        }

        void do_backward_parameters(const Arguments& arguments, const Pass& /*pass*/) override {
            backward_parameters_.set(DNNL_ARG_SRC, gradients_source_(source_.result()))
                .set(DNNL_ARG_DIFF_DST, gradients_output_(arguments.output_gradient))
                .run();
            if (copy_weight_) copy_weight_.run();
        }

        void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
            // Made when it is needed: the first layer of a network rarely needs it.
            if (!backward_input_) backward_input_ = Primitive(context(), described_input_, {});
            backward_input_.set(DNNL_ARG_DIFF_DST, input_output_(arguments.output_gradient))
                .set(DNNL_ARG_WEIGHTS, input_weight_(layer_.weight_.value_memory()))
                .set(DNNL_ARG_DIFF_SRC, arguments.input_gradients[0])
                .run();
        }

        WeightedLayer& layer_;
        Forward described_;
        Converter source_;
        Converter weight_;
        Primitive forward_;
        Converter gradients_source_;
        Converter gradients_output_;
        Primitive backward_parameters_;
        Primitive copy_weight_;
        typename Passes::BackwardInput::primitive_desc described_input_;
        Converter input_output_;
        Converter input_weight_;
        Primitive backward_input_;
    };

    /// Describes the forward pass with the parameter's layout, unless Parameter::make_row_major() has changed
    /// it, which would select oneDNN's slow loops.
    [[nodiscard]] Forward describe(const Layout& input) const {
        const Layout weight = weight_.value_memory().get_desc();
        const bool is_own = weight == nominal_.weights_desc();
        return passes_.describe_forward(input, is_own ? weight : any_layout(passes_.weight_dims(input)));
    }

    PlanPointer do_plan(std::size_t /*batch*/, std::span<const Layout> inputs) override {
        return std::make_unique<WeightedPlan>(*this, inputs[0]);
    }

    Passes passes_;
    Forward nominal_;
    Parameter weight_;
    std::optional<Parameter> bias_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
