/// Add with oneDNN's binary primitive, perhaps together with a ReLU.
#pragma once

#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class AddPlan final : public Plan {
  public:
    AddPlan(Layer& layer, const Layout& first, const Layout& second) : Plan(layer) {
        output = first;
        second_ = add_converter(second, first, WorkspaceUse::forward);
        use.overwritable_inputs = second_.copies() ? 1 : 2;
        use.passes_gradient = true;
        const bool has_relu = info().relu == FusedReLU::follows;
        // With a post-op, oneDNN 2.6 computes wrong sums of layouts with padding.
        const bool is_fused = has_relu && !has_padding(first);
        forward_ = Primitive(context(),
                             describe<dnnl::binary>(context().engine, is_fused ? PostOp::relu : PostOp::none,
                                                    dnnl::algorithm::binary_add, first, first, first));
        if (has_relu && !is_fused)
            relu_ = Primitive(
                context(),
                describe_pointwise(context().engine, {dnnl::algorithm::eltwise_relu_use_dst_for_bwd}, first),
                {});
    }

  private:
    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        return {output_gradient, output_gradient};
    }

    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        const dnnl::memory *first = &arguments.inputs[0], *second = &second_(arguments.inputs[1]);
        // Only the first argument may be overwritten.
        if (second->get_data_handle() == arguments.output.get_data_handle()) std::swap(first, second);
        forward_.set(DNNL_ARG_SRC_0, *first)
            .set(DNNL_ARG_SRC_1, *second)
            .set(DNNL_ARG_DST, arguments.output)
            .run();
        if (relu_) relu_.set(DNNL_ARG_SRC, arguments.output).set(DNNL_ARG_DST, arguments.output).run();
    }

    Converter second_;
    Primitive forward_;
    Primitive relu_;  // if it is not fused
};

}  // namespace DPTK_NAMESPACE::nn::cpu
