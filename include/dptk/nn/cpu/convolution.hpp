/// Conv2d with oneDNN's convolution; small_convolution.hpp is for images of few pixels. Each pass uses the
/// layouts that oneDNN chooses for it, since a forced layout may select oneDNN's slow reference loops. Copies
/// between layouts cost little, and are made only if layouts differ.
#pragma once

#include <variant>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/weighted_plan.hpp"
#include "dptk/nn/cpu/windows.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// See WeightedPlan.
class Conv2dPasses {
  public:
    using Forward = dnnl::convolution_forward;
    using BackwardInput = dnnl::convolution_backward_data;
    using BackwardParameters = dnnl::convolution_backward_weights;

    Conv2dPasses(const Context& context, const OperationInfo& info)
        : engine_(context.engine),
          post_op_(post_op_of(info)),
          conv_(std::get<Conv2d>(info.operation)),
          out_(info.output),
          bias_(bias_layout(conv_.bias, out_[0])),
          operand_(context.operand_type),
          windows_(conv_.kernel_size, conv_.stride, conv_.padding, conv_.dilation, info),
          weight_shape_(parameters_of(conv_, info.inputs)[0].shape) {}

    [[nodiscard]] ElementType operand_type() const noexcept { return operand_; }

    /// Returns {outputs, channels, height, width}, or with groups, {groups, outputs of a group, channels,
    /// height, width}.
    [[nodiscard]] Dims weight_dims(const Layout& /*input*/) const {
        Dims dims(weight_shape_.begin(), weight_shape_.end());
        if (conv_.groups == 1) return dims;
        const auto groups = static_cast<dnnl::memory::dim>(conv_.groups);
        dims[0] /= groups;
        dims.insert(dims.begin(), groups);
        return dims;
    }

    [[nodiscard]] auto describe_forward(const Layout& input, const Layout& weight) const {
        const Layout result = any_layout(dims_of_batch(static_cast<std::size_t>(dims_of(input)[0]), out_));
        return describe<Forward>(engine_, post_op_, dnnl::prop_kind::forward_training, direct,
                                 any_order(input, operand_), weight, bias_, result, windows_.strides,
                                 windows_.dilation, windows_.padding, windows_.end_padding);
    }

    [[nodiscard]] auto describe_gradients(const Forward::primitive_desc& forward) const {
        return describe_backward<BackwardParameters>(
            engine_, forward, direct, any_order(forward.src_desc(), operand_),
            any_order(forward.weights_desc()), bias_, any_order(forward.dst_desc(), operand_),
            windows_.strides, windows_.dilation, windows_.padding, windows_.end_padding);
    }

    [[nodiscard]] auto describe_backward_input(const Forward::primitive_desc& forward) const {
        return describe_backward<BackwardInput>(engine_, forward, direct, any_order(forward.src_desc()),
                                                any_order(forward.weights_desc(), operand_),
                                                any_order(forward.dst_desc(), operand_), windows_.strides,
                                                windows_.dilation, windows_.padding, windows_.end_padding);
    }

  private:
    static constexpr auto direct = dnnl::algorithm::convolution_direct;

    dnnl::engine engine_;
    PostOp post_op_;
    Conv2d conv_;
    Shape out_;
    Layout bias_;
    ElementType operand_;
    Windows windows_;
    Shape weight_shape_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
