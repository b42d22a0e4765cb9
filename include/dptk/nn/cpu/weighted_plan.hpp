/// The common part of Linear and Conv2d on oneDNN: a weight, perhaps a bias, and three passes. The template
/// argument Passes describes each pass as one primitive. Memory is copied between layouts if passes need
/// different layouts.
#pragma once

#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Passes has a constructor from a Context and an OperationInfo, and:
/// - `Forward`, `BackwardInput`: the primitives of two passes
/// - `operand_type()`: the element type of sources, weights and the gradients of results; f32 if that of the
///   context would select oneDNN's slow loops. All else is f32.
/// - `weight_dims(input)`: the weight's dimensions in oneDNN, for inputs with the layout `input`
/// - `describe_forward(input, weight)`: the forward pass, for inputs and a weight of these layouts; a weight
///   of another element type has any layout
/// - `describe_gradients(forward)`, `describe_backward_input(forward)`: the corresponding backward passes
template <class Passes>
class WeightedPlan final : public Plan {
  public:
    WeightedPlan(Layer& layer, const Layout& input)
        : Plan(layer),
          passes_(passes_for(context(), info(), input)),
          described_(passes_.describe_forward(input, weight_for(input))) {
        output = described_.dst_desc();
        source_ = add_converter(input, described_.src_desc(), WorkspaceUse::kept);
        weight_ = add_converter(value().get_desc(), described_.weights_desc(), WorkspaceUse::forward);
        use.keeps_inputs = !source_.copies();
    }

  private:
    [[nodiscard]] static Passes passes_for(Context context, const OperationInfo& info, const Layout& input) {
        const Passes passes(context, info);
        if (context.operand_type == ElementType::f32) return passes;
        const Layout weight = any_layout(passes.weight_dims(input), context.operand_type);
        if (!is_slow(passes.describe_forward(input, weight))) return passes;
        context.operand_type = ElementType::f32;
        return Passes(context, info);
    }

    [[nodiscard]] const dnnl::memory& value() const { return layer().weight().value_memory(); }

    /// A weight that was made row-major is converted: it would select oneDNN's slow loops.
    [[nodiscard]] Layout weight_for(const Layout& input) const {
        const ElementType type = passes_.operand_type();
        return type != ElementType::f32 || layer().weight().was_made_row_major()
                   ? any_layout(passes_.weight_dims(input), type)
                   : value().get_desc();
    }

    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        const auto gradients = passes_.describe_gradients(described_);
        gradients_source_ =
            add_converter(described_.src_desc(), gradients.src_desc(), WorkspaceUse::backward);
        gradients_output_ = add_converter(output_gradient, gradients.diff_dst_desc(), WorkspaceUse::backward);
        // If the primitive writes weight gradients in another layout than the parameter's, they are copied.
        dnnl::memory computed = layer().weight().gradient_memory();
        if (gradients.diff_weights_desc() != computed.get_desc()) {
            computed = add_workspace(gradients.diff_weights_desc(), WorkspaceUse::backward);
            copy_weight_ = reorder(context(), computed, layer().weight().gradient_memory());
        }
        backward_parameters_ = Primitive(context(), gradients, {{DNNL_ARG_DIFF_WEIGHTS, computed}});
        if (layer().has_bias())
            backward_parameters_.set(DNNL_ARG_DIFF_BIAS, layer().bias().gradient_memory());

        described_input_ = passes_.describe_backward_input(described_);
        input_output_ =
            add_converter(output_gradient, described_input_.diff_dst_desc(), WorkspaceUse::backward);
        input_weight_ =
            add_converter(value().get_desc(), described_input_.weights_desc(), WorkspaceUse::backward);
        return {described_input_.diff_src_desc()};
    }

    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        if (!forward_) {
            forward_ = Primitive(context(), described_);
            if (layer().has_bias()) forward_.set(DNNL_ARG_BIAS, layer().bias().value_memory());
        }
        forward_.set(DNNL_ARG_SRC, source_(arguments.inputs[0]))
            .set(DNNL_ARG_WEIGHTS, weight_(value()))
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
        if (!backward_input_) backward_input_ = Primitive(context(), described_input_);
        backward_input_.set(DNNL_ARG_DIFF_DST, input_output_(arguments.output_gradient))
            .set(DNNL_ARG_WEIGHTS, input_weight_(value()))
            .set(DNNL_ARG_DIFF_SRC, arguments.input_gradients[0])
            .run();
    }

    Passes passes_;
    typename Passes::Forward::primitive_desc described_;
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

/// Returns the layout of a bias for `outputs` outputs; without a bias, the empty layout, which tells oneDNN
/// so.
[[nodiscard]] inline Layout bias_layout(bool has_bias, std::size_t outputs) {
    return has_bias ? any_layout({static_cast<dnnl::memory::dim>(outputs)}) : Layout();
}

/// Returns what a Linear or Conv2d does with its results.
[[nodiscard]] inline PostOp post_op_of(const OperationInfo& info) {
    return info.relu == FusedReLU::follows ? PostOp::relu : PostOp::none;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
