/// Conv2d over oneDNN's convolution. Each pass works in the layouts that oneDNN chooses for it, since forcing
/// one can throw it back on its plain loops; copies between them cost little and are made only where layouts
/// differ.
#pragma once

#include <cstddef>

#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/weighted_layer.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn::cpu {

class Conv2dPasses {
  public:
    using Forward = dnnl::convolution_forward;
    using BackwardInput = dnnl::convolution_backward_data;
    using BackwardParameters = dnnl::convolution_backward_weights;

    /// \param input the shape of a sample, {channels, height, width}
    Conv2dPasses(const Context& context, const Conv2d& spec, const Shape& input, PostOp post_op)
        : engine_(context.engine),
          post_op_(post_op),
          out_(nn::output_shape(spec, input)),
          strides_(2, dim(spec.stride)),
          padding_(2, dim(spec.padding)),
          weight_shape_{spec.out_channels, input[0], spec.kernel_size, spec.kernel_size} {}

    [[nodiscard]] const Shape& weight_shape() const { return weight_shape_; }

    [[nodiscard]] Dims weight_dims(const Layout& /*input*/) const {
        return {weight_shape_.begin(), weight_shape_.end()};
    }

    [[nodiscard]] Forward::primitive_desc describe_forward(const Layout& input, const Layout& weight) const {
        const Dims output{dims_of(input)[0], dim(out_[0]), dim(out_[1]), dim(out_[2])};
        return describe<Forward>(engine_, post_op_, dnnl::prop_kind::forward_training,
                                 dnnl::algorithm::convolution_direct, any_layout(dims_of(input)), weight,
                                 any_layout(bias_dims()), any_layout(output), strides_, padding_, padding_);
    }

    [[nodiscard]] BackwardParameters::primitive_desc describe_gradients(
        const Forward::primitive_desc& forward) const {
        return describe_backward<BackwardParameters>(engine_, forward, dnnl::algorithm::convolution_direct,
                                                     freed(forward.src_desc()), freed(forward.weights_desc()),
                                                     any_layout(bias_dims()), freed(forward.dst_desc()),
                                                     strides_, padding_, padding_);
    }

    [[nodiscard]] BackwardInput::primitive_desc describe_backward_input(
        const Forward::primitive_desc& forward) const {
        return describe_backward<BackwardInput>(engine_, forward, dnnl::algorithm::convolution_direct,
                                                freed(forward.src_desc()), freed(forward.weights_desc()),
                                                freed(forward.dst_desc()), strides_, padding_, padding_);
    }

  private:
    static dnnl::memory::dim dim(std::size_t size) { return static_cast<dnnl::memory::dim>(size); }

    /// Any layout, of the same dimensions.
    [[nodiscard]] static Layout freed(const Layout& layout) { return any_layout(dims_of(layout)); }

    [[nodiscard]] Dims bias_dims() const { return {dim(out_[0])}; }

    dnnl::engine engine_;
    PostOp post_op_;
    Shape out_;
    Dims strides_;
    Dims padding_;
    Shape weight_shape_;
};

using Conv2dLayer = WeightedLayer<Conv2dPasses>;

}  // namespace dptk::nn::cpu
