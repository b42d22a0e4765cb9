/// Conv2d with oneDNN's convolution. Each pass uses the layouts that oneDNN chooses for it, since a forced
/// layout may select oneDNN's slow reference loops. Copies between layouts cost little, and are made only
/// if layouts differ.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/weighted_layer.hpp"
#include "dptk/nn/operations.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class Conv2dPasses {
  public:
    using Forward = dnnl::convolution_forward;
    using BackwardInput = dnnl::convolution_backward_data;
    using BackwardParameters = dnnl::convolution_backward_weights;

    /// `input` is the shape of a sample, {channels, height, width}.
    Conv2dPasses(const Context& context, const Conv2d& conv, const Shape& input, PostOp post_op);

    [[nodiscard]] const Shape& weight_shape() const { return weight_shape_; }

    [[nodiscard]] bool has_bias() const { return conv_.bias; }

    /// Returns {outputs, channels, height, width}, or with groups, {groups, outputs of a group, channels,
    /// height, width}.
    [[nodiscard]] Dims weight_dims(const Layout& /*input*/) const;

    [[nodiscard]] Forward::primitive_desc describe_forward(const Layout& input, const Layout& weight) const;

    [[nodiscard]] BackwardParameters::primitive_desc describe_gradients(
        const Forward::primitive_desc& forward) const;

    [[nodiscard]] BackwardInput::primitive_desc describe_backward_input(
        const Forward::primitive_desc& forward) const;

  private:
    /// Returns a layout with the dimensions of `layout`, in an order that oneDNN may choose.
    [[nodiscard]] static Layout with_any_order(const Layout& layout);

    [[nodiscard]] Layout bias_layout() const;

    dnnl::engine engine_;
    PostOp post_op_;
    Conv2d conv_;
    Shape out_;
    Dims strides_;
    Dims dilation_;  // 0 where neighbors are next to each other
    Dims padding_;
    Dims end_padding_;  // negative where the last rows or columns are not used
    Shape weight_shape_;
};

using Conv2dLayer = WeightedLayer<Conv2dPasses>;

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/convolution.ipp"
#endif
