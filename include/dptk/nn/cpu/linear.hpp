/// Linear with oneDNN's inner product. After convolutions, Linear accepts the blocked images that they
/// return, and has its weight in a matching blocked layout, so that Flatten costs nothing.
#pragma once

#include <type_traits>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/weighted_layer.hpp"
#include "dptk/nn/operations.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class LinearPasses {
  public:
    using Forward = dnnl::inner_product_forward;
    using BackwardInput = dnnl::inner_product_backward_data;
    using BackwardParameters = dnnl::inner_product_backward_weights;

    /// `input` is the shape of a sample, {in_features}.
    LinearPasses(const Context& context, const Linear& linear, const Shape& input, PostOp post_op);

    [[nodiscard]] const Shape& weight_shape() const { return weight_shape_; }

    [[nodiscard]] bool has_bias() const { return has_bias_; }

    /// Returns the dimensions of the weight: those of `input`, with the first one replaced by out_features.
    /// A sample of `input` is in_features numbers or an image with as many elements.
    [[nodiscard]] Dims weight_dims(const Layout& input) const;

    [[nodiscard]] Forward::primitive_desc describe_forward(const Layout& input, const Layout& weight) const;

    [[nodiscard]] BackwardParameters::primitive_desc describe_gradients(
        const Forward::primitive_desc& forward) const;

    [[nodiscard]] BackwardInput::primitive_desc describe_backward_input(
        const Forward::primitive_desc& forward) const;

  private:
    /// The layouts of a pass: of the source, the weight and the output, or of their gradients.
    struct Layouts {
        Layout source;
        Layout weight;
        Layout output;
    };

    [[nodiscard]] static Layouts free_layouts(const Forward::primitive_desc& forward);

    /// Describes a backward pass with the layouts of the forward pass. If oneDNN could choose freely, it
    /// would choose other layouts, and the weight would be copied at each step.
    template <class Describe>
    [[nodiscard]] static std::invoke_result_t<Describe, Layouts> describe_like(
        const Forward::primitive_desc& forward, Describe&& with) {
        return describe_fast(
            [&] {
                return with(Layouts{forward.src_desc(), forward.weights_desc(), forward.dst_desc()});
            },
            [&] { return with(free_layouts(forward)); });
    }

    dnnl::engine engine_;
    PostOp post_op_;
    bool has_bias_;
    dnnl::memory::dim out_;
    Shape weight_shape_;
};

using LinearLayer = WeightedLayer<LinearPasses>;

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/linear.ipp"
#endif
