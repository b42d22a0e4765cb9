#pragma once

#include "dptk/nn/cpu/pool.hpp"

#include "dptk/nn/cpu/convolution.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class PoolPlan final : public Plan {
  public:
    PoolPlan(PoolLayer& layer, const Layout& input)
        : Plan(layer), layer_(layer), described_(layer.describe_forward(input)) {
        output = described_.dst_desc();
        forward_ = Primitive(context(), described_, {});
        if (described_.workspace_desc().get_size() == 0) return;
        workspace_ = add_workspace(described_.workspace_desc(), WorkspaceUse::kept);
        forward_.set(DNNL_ARG_WORKSPACE, workspace_);
    }

  private:
    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        const auto described = layer_.describe_gradient(described_);
        output_gradient_ = add_converter(output_gradient, described.diff_dst_desc(), WorkspaceUse::backward);
        backward_ = Primitive(context(), described, {});
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

    PoolLayer& layer_;
    PoolingForward::primitive_desc described_;
    dnnl::memory workspace_;
    Primitive forward_;
    Converter output_gradient_;
    Primitive backward_;
};

DPTK_INLINE PoolWindows pool_windows(const OperationInfo& info) {
    if (const auto* const pool = std::get_if<MaxPool2d>(&info.operation))
        return {dnnl::algorithm::pooling_max, pool->kernel_size, pool->stride, pool->padding};
    constexpr auto mean = dnnl::algorithm::pooling_avg_include_padding;
    if (const auto* const pool = std::get_if<AvgPool2d>(&info.operation))
        return {mean, pool->kernel_size, pool->stride, pool->padding};
    return {mean, {info.inputs[0][1], info.inputs[0][2]}, 1, 0};  // GlobalAvgPool2d
}

DPTK_INLINE PoolLayer::PoolLayer(const Context& context, const Request& request)
    : Layer(context, request.info),
      windows_(pool_windows(info())),
      kernel_(dims_of_size(windows_.kernel_size)),
      strides_(dims_of_size(windows_.stride)),
      padding_(dims_of_size(windows_.padding)) {
    const Shape &in = info().inputs[0], &out = info().output;
    end_padding_ = {padding_at_end(in[1], out[1], windows_.kernel_size.height, windows_.stride.height,
                                   windows_.padding.height),
                    padding_at_end(in[2], out[2], windows_.kernel_size.width, windows_.stride.width,
                                   windows_.padding.width)};
    nominal_ = describe_forward(request.inputs[0]).dst_desc();
}

DPTK_INLINE Layout PoolLayer::nominal_output() const {
    return nominal_;
}

DPTK_INLINE PoolingForward::primitive_desc PoolLayer::describe_forward(const Layout& input) const {
    Dims output{dims_of(input)[0]};
    output.insert(output.end(), info().output.begin(), info().output.end());
    return describe<PoolingForward>(context().engine, PostOp::none, dnnl::prop_kind::forward_training,
                                    windows_.algorithm, input, any_layout(output), strides_, kernel_,
                                    no_dilation_, padding_, end_padding_);
}

DPTK_INLINE PoolingBackward::primitive_desc PoolLayer::describe_gradient(
    const PoolingForward::primitive_desc& forward) const {
    return describe_backward<PoolingBackward>(context().engine, forward, windows_.algorithm,
                                              forward.src_desc(), forward.dst_desc(), strides_, kernel_,
                                              no_dilation_, padding_, end_padding_);
}

DPTK_INLINE PlanPointer PoolLayer::do_plan(std::size_t /*batch*/, std::span<const Layout> inputs) {
    return std::make_unique<PoolPlan>(*this, inputs[0]);
}

}  // namespace DPTK_NAMESPACE::nn::cpu
