/// Pointwise operations with oneDNN's eltwise primitives, and ReLUs that are fused with the operation before
/// them.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Returns oneDNN's function for a pointwise operation; nullopt if it has none, or for other operations.
[[nodiscard]] inline std::optional<PointwiseAlgorithm> pointwise_algorithm(const Operation& operation) {
    using Algorithm = dnnl::algorithm;
    if (std::holds_alternative<ReLU>(operation)) return {{Algorithm::eltwise_relu_use_dst_for_bwd}};
    if (std::holds_alternative<ReLU6>(operation))
        return {{Algorithm::eltwise_clip_v2_use_dst_for_bwd, 0.0F, 6.0F}};
    if (std::holds_alternative<Sigmoid>(operation)) return {{Algorithm::eltwise_logistic_use_dst_for_bwd}};
    if (std::holds_alternative<SiLU>(operation)) return {{Algorithm::eltwise_swish, 1.0F}};
    return std::nullopt;
}

class PointwisePlan final : public Plan {
  public:
    PointwisePlan(Layer& layer, const Layout& input)
        : Plan(layer), function_(*pointwise_algorithm(info().operation)) {
        const bool is_done = info().relu == FusedReLU::is_done;
        output = input;
        described_ = describe_pointwise(context().engine, function_, input);
        use.is_view = is_done;
        use.passes_gradient = is_done && layer.follows_norm();
        use.keeps_output = !use.passes_gradient && is_of_output();
        use.keeps_inputs = !is_of_output();
        use.overwritable_inputs = use.keeps_inputs || is_done ? 0 : 1;
        if (!is_done) forward_ = Primitive(context(), described_);
    }

  private:
    /// Returns whether the derivative is a function of the value.
    [[nodiscard]] bool is_of_output() const { return function_.algorithm != dnnl::algorithm::eltwise_swish; }

    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        if (use.passes_gradient) return {output_gradient};
        output_gradient_ = add_converter(output_gradient, output, WorkspaceUse::backward);
        use.can_overwrite_gradient = !output_gradient_.copies();
        backward_ = Primitive(context(),
                              describe_pointwise_backward(context().engine, function_, output, described_));
        return {output};
    }

    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        if (use.is_view) return;
        forward_.set(DNNL_ARG_SRC, arguments.inputs[0]).set(DNNL_ARG_DST, arguments.output).run();
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
        if (use.passes_gradient) return;
        if (is_of_output()) {
            backward_.set(DNNL_ARG_DST, arguments.output);
        } else {
            backward_.set(DNNL_ARG_SRC, arguments.inputs[0]);
        }
        backward_.set(DNNL_ARG_DIFF_DST, output_gradient_(arguments.output_gradient))
            .set(DNNL_ARG_DIFF_SRC, arguments.input_gradients[0])
            .run();
    }

    PointwiseAlgorithm function_;
    dnnl::eltwise_forward::primitive_desc described_;
    Primitive forward_;
    Converter output_gradient_;
    Primitive backward_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
