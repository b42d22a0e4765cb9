/// Pools with oneDNN's pooling.
#pragma once

#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/windows.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

[[nodiscard]] inline bool is_pool(const Operation& operation) {
    return std::holds_alternative<MaxPool2d>(operation) || std::holds_alternative<AvgPool2d>(operation) ||
           std::holds_alternative<GlobalAvgPool2d>(operation);
}

class PoolPlan final : public Plan {
  public:
    PoolPlan(Layer& layer, const Layout& input)
        : Plan(layer),
          algorithm_(std::holds_alternative<MaxPool2d>(info().operation)
                         ? dnnl::algorithm::pooling_max
                         : dnnl::algorithm::pooling_avg_include_padding),
          windows_(windows_of(info())) {
        const Dims result = dims_of_batch(static_cast<std::size_t>(dims_of(input)[0]), info().output);
        described_ =
            describe<PoolingForward>(context().engine, PostOp::none, dnnl::prop_kind::forward_training,
                                     algorithm_, input, any_layout(result), windows_.strides, windows_.kernel,
                                     windows_.dilation, windows_.padding, windows_.end_padding);
        output = described_.dst_desc();
        forward_ = Primitive(context(), described_);
        if (described_.workspace_desc().get_size() == 0) return;
        workspace_ = add_workspace(described_.workspace_desc(), WorkspaceUse::kept);
        forward_.set(DNNL_ARG_WORKSPACE, workspace_);
    }

  private:
    [[nodiscard]] static Windows windows_of(const OperationInfo& info) {
        if (const auto* const pool = std::get_if<MaxPool2d>(&info.operation))
            return {pool->kernel_size, pool->stride, pool->padding, 1, info};
        if (const auto* const pool = std::get_if<AvgPool2d>(&info.operation))
            return {pool->kernel_size, pool->stride, pool->padding, 1, info};
        return {{info.inputs[0][1], info.inputs[0][2]}, 1, 0, 1, info};  // GlobalAvgPool2d
    }

    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        const auto described = describe_backward<PoolingBackward>(
            context().engine, described_, algorithm_, described_.src_desc(), described_.dst_desc(),
            windows_.strides, windows_.kernel, windows_.dilation, windows_.padding, windows_.end_padding);
        output_gradient_ = add_converter(output_gradient, described.diff_dst_desc(), WorkspaceUse::backward);
        backward_ = Primitive(context(), described);
        if (workspace_) backward_.set(DNNL_ARG_WORKSPACE, workspace_);
        return {described.diff_src_desc()};
    }

    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        forward_.set(DNNL_ARG_SRC, arguments.inputs[0]).set(DNNL_ARG_DST, arguments.output).run();
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
        backward_.set(DNNL_ARG_DIFF_DST, output_gradient_(arguments.output_gradient))
            .set(DNNL_ARG_DIFF_SRC, arguments.input_gradients[0])
            .run();
    }

    dnnl::algorithm algorithm_;
    Windows windows_;
    PoolingForward::primitive_desc described_;
    dnnl::memory workspace_;
    Primitive forward_;
    Converter output_gradient_;
    Primitive backward_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
