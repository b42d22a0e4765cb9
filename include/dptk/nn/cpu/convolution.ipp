#pragma once

#include "dptk/nn/cpu/convolution.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Conv2dPasses::Conv2dPasses(const Context& context, const Conv2d& spec, const Shape& input,
                                       PostOp post_op)
    : engine_(context.engine),
      post_op_(post_op),
      out_(nn::output_shape(spec, input)),
      strides_(2, dim(spec.stride)),
      padding_(2, dim(spec.padding)),
      weight_shape_{spec.out_channels, input[0], spec.kernel_size, spec.kernel_size} {}

DPTK_INLINE Dims Conv2dPasses::weight_dims(const Layout& /*input*/) const {
    return {weight_shape_.begin(), weight_shape_.end()};
}

DPTK_INLINE Conv2dPasses::Forward::primitive_desc Conv2dPasses::describe_forward(const Layout& input,
                                                                                 const Layout& weight) const {
    const Dims output{dims_of(input)[0], dim(out_[0]), dim(out_[1]), dim(out_[2])};
    return describe<Forward>(engine_, post_op_, dnnl::prop_kind::forward_training,
                             dnnl::algorithm::convolution_direct, any_layout(dims_of(input)), weight,
                             any_layout(bias_dims()), any_layout(output), strides_, padding_, padding_);
}

DPTK_INLINE Conv2dPasses::BackwardParameters::primitive_desc Conv2dPasses::describe_gradients(
    const Forward::primitive_desc& forward) const {
    return describe_backward<BackwardParameters>(
        engine_, forward, dnnl::algorithm::convolution_direct, with_any_order(forward.src_desc()),
        with_any_order(forward.weights_desc()), any_layout(bias_dims()), with_any_order(forward.dst_desc()),
        strides_, padding_, padding_);
}

DPTK_INLINE Conv2dPasses::BackwardInput::primitive_desc Conv2dPasses::describe_backward_input(
    const Forward::primitive_desc& forward) const {
    return describe_backward<BackwardInput>(engine_, forward, dnnl::algorithm::convolution_direct,
                                            with_any_order(forward.src_desc()),
                                            with_any_order(forward.weights_desc()),
                                            with_any_order(forward.dst_desc()), strides_, padding_, padding_);
}

DPTK_INLINE Layout Conv2dPasses::with_any_order(const Layout& layout) {
    return any_layout(dims_of(layout));
}

}  // namespace DPTK_NAMESPACE::nn::cpu
