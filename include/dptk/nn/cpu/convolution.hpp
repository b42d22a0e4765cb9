/// Conv2d with oneDNN's convolution. Each pass uses the layouts that oneDNN chooses for it, since a forced
/// layout may select oneDNN's slow reference loops. Copies between layouts cost little, and are made only
/// if layouts differ.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/weighted_layer.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class Conv2dPasses {
  public:
    using Forward = dnnl::convolution_forward;
    using BackwardInput = dnnl::convolution_backward_data;
    using BackwardParameters = dnnl::convolution_backward_weights;

    /// `input` is the shape of a sample, {channels, height, width}.
    Conv2dPasses(const Context& context, const Conv2d& spec, const Shape& input, PostOp post_op);

    [[nodiscard]] const Shape& weight_shape() const { return weight_shape_; }

    [[nodiscard]] Dims weight_dims(const Layout& /*input*/) const;

    [[nodiscard]] Forward::primitive_desc describe_forward(const Layout& input, const Layout& weight) const;

    [[nodiscard]] BackwardParameters::primitive_desc describe_gradients(
        const Forward::primitive_desc& forward) const;

    [[nodiscard]] BackwardInput::primitive_desc describe_backward_input(
        const Forward::primitive_desc& forward) const;

  private:
    static dnnl::memory::dim dim(std::size_t size) { return static_cast<dnnl::memory::dim>(size); }

    /// Returns a layout with the dimensions of `layout`, in an order that oneDNN may choose.
    [[nodiscard]] static Layout with_any_order(const Layout& layout);

    [[nodiscard]] Dims bias_dims() const { return {dim(out_[0])}; }

    dnnl::engine engine_;
    PostOp post_op_;
    Shape out_;
    Dims strides_;
    Dims padding_;
    Shape weight_shape_;
};

using Conv2dLayer = WeightedLayer<Conv2dPasses>;

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/convolution.ipp"
#endif
