#pragma once

#include "dptk/nn/cpu/linear.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE LinearPasses::LinearPasses(const Context& context, const Linear& linear, const Shape& input,
                                       PostOp post_op)
    : engine_(context.engine),
      post_op_(post_op),
      has_bias_(linear.bias),
      out_(static_cast<dnnl::memory::dim>(linear.out_features)),
      weight_shape_{linear.out_features, input[0]} {}

DPTK_INLINE Dims LinearPasses::weight_dims(const Layout& input) const {
    Dims dims = dims_of(input);
    dims[0] = out_;
    return dims;
}

DPTK_INLINE LinearPasses::Forward::primitive_desc LinearPasses::describe_forward(const Layout& input,
                                                                                 const Layout& weight) const {
    const auto from = [&](const Layout& source) {
        const Layout output = any_layout({dims_of(input)[0], out_});
        constexpr auto kind = dnnl::prop_kind::forward_training;
        if (!has_bias_) return describe<Forward>(engine_, post_op_, kind, source, weight, output);
        return describe<Forward>(engine_, post_op_, kind, source, weight, any_layout({out_}), output);
    };
    return describe_fast([&] { return from(input); }, [&] { return from(any_layout(dims_of(input))); });
}

DPTK_INLINE LinearPasses::BackwardParameters::primitive_desc LinearPasses::describe_gradients(
    const Forward::primitive_desc& forward) const {
    return describe_like(forward, [&](const Layouts& layouts) {
        if (!has_bias_)
            return describe_backward<BackwardParameters>(engine_, forward, layouts.source, layouts.weight,
                                                         layouts.output);
        return describe_backward<BackwardParameters>(engine_, forward, layouts.source, layouts.weight,
                                                     any_layout({out_}), layouts.output);
    });
}

DPTK_INLINE LinearPasses::BackwardInput::primitive_desc LinearPasses::describe_backward_input(
    const Forward::primitive_desc& forward) const {
    return describe_like(forward, [&](const Layouts& layouts) {
        return describe_backward<BackwardInput>(engine_, forward, layouts.source, layouts.weight,
                                                layouts.output);
    });
}

DPTK_INLINE LinearPasses::Layouts LinearPasses::free_layouts(const Forward::primitive_desc& forward) {
    return {any_layout(dims_of(forward.src_desc())), any_layout(dims_of(forward.weights_desc())),
            any_layout(dims_of(forward.dst_desc()))};
}

}  // namespace DPTK_NAMESPACE::nn::cpu
