#pragma once

#include "dptk/nn/cpu/convolution.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Returns the padding behind the last row or column that makes windows fill the image exactly; it may be
/// negative.
[[nodiscard]] DPTK_INLINE dnnl::memory::dim padding_at_end(std::size_t size, std::size_t outputs,
                                                           std::size_t span, std::size_t stride,
                                                           std::size_t padding) {
    return static_cast<dnnl::memory::dim>((outputs - 1) * stride + span) -
           static_cast<dnnl::memory::dim>(size + padding);
}

[[nodiscard]] DPTK_INLINE Dims dims_of_size(const Size2d& size) {
    return {static_cast<dnnl::memory::dim>(size.height), static_cast<dnnl::memory::dim>(size.width)};
}

DPTK_INLINE Conv2dPasses::Conv2dPasses(const Context& context, const Conv2d& conv, const Shape& input,
                                       PostOp post_op)
    : engine_(context.engine),
      post_op_(post_op),
      conv_(conv),
      out_(conv.output_shape({&input, 1})),
      strides_(dims_of_size(conv.stride)),
      dilation_(dims_of_size({conv.dilation.height - 1, conv.dilation.width - 1})),
      padding_(dims_of_size(conv.padding)),
      end_padding_{padding_at_end(input[1], out_[1], conv.dilation.height * (conv.kernel_size.height - 1) + 1,
                                  conv.stride.height, conv.padding.height),
                   padding_at_end(input[2], out_[2], conv.dilation.width * (conv.kernel_size.width - 1) + 1,
                                  conv.stride.width, conv.padding.width)},
      weight_shape_(conv.parameters({&input, 1})[0].shape) {}

DPTK_INLINE Dims Conv2dPasses::weight_dims(const Layout& /*input*/) const {
    Dims dims(weight_shape_.begin(), weight_shape_.end());
    if (conv_.groups == 1) return dims;
    const auto groups = static_cast<dnnl::memory::dim>(conv_.groups);
    dims[0] /= groups;
    dims.insert(dims.begin(), groups);
    return dims;
}

DPTK_INLINE Layout Conv2dPasses::bias_layout() const {
    return any_layout({static_cast<dnnl::memory::dim>(out_[0])});
}

DPTK_INLINE Conv2dPasses::Forward::primitive_desc Conv2dPasses::describe_forward(const Layout& input,
                                                                                 const Layout& weight) const {
    Dims output{dims_of(input)[0]};
    output.insert(output.end(), out_.begin(), out_.end());
    constexpr auto kind = dnnl::prop_kind::forward_training;
    constexpr auto algorithm = dnnl::algorithm::convolution_direct;
    const Layout source = any_layout(dims_of(input)), result = any_layout(output);
    if (!conv_.bias)
        return describe<Forward>(engine_, post_op_, kind, algorithm, source, weight, result, strides_,
                                 dilation_, padding_, end_padding_);
    return describe<Forward>(engine_, post_op_, kind, algorithm, source, weight, bias_layout(), result,
                             strides_, dilation_, padding_, end_padding_);
}

DPTK_INLINE Conv2dPasses::BackwardParameters::primitive_desc Conv2dPasses::describe_gradients(
    const Forward::primitive_desc& forward) const {
    constexpr auto algorithm = dnnl::algorithm::convolution_direct;
    const Layout source = with_any_order(forward.src_desc()), weight = with_any_order(forward.weights_desc()),
                 result = with_any_order(forward.dst_desc());
    if (!conv_.bias)
        return describe_backward<BackwardParameters>(engine_, forward, algorithm, source, weight, result,
                                                     strides_, dilation_, padding_, end_padding_);
    return describe_backward<BackwardParameters>(engine_, forward, algorithm, source, weight, bias_layout(),
                                                 result, strides_, dilation_, padding_, end_padding_);
}

DPTK_INLINE Conv2dPasses::BackwardInput::primitive_desc Conv2dPasses::describe_backward_input(
    const Forward::primitive_desc& forward) const {
    return describe_backward<BackwardInput>(
        engine_, forward, dnnl::algorithm::convolution_direct, with_any_order(forward.src_desc()),
        with_any_order(forward.weights_desc()), with_any_order(forward.dst_desc()), strides_, dilation_,
        padding_, end_padding_);
}

DPTK_INLINE Layout Conv2dPasses::with_any_order(const Layout& layout) {
    return any_layout(dims_of(layout));
}

}  // namespace DPTK_NAMESPACE::nn::cpu
