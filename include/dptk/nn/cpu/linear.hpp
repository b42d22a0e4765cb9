/// Linear over oneDNN's inner product. After convolutions it takes their blocked images as they are, with a
/// weight blocked to match, so that Flatten costs nothing.
#pragma once

#include <type_traits>

#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/weighted_layer.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn::cpu {

class LinearPasses {
  public:
    using Forward = dnnl::inner_product_forward;
    using BackwardInput = dnnl::inner_product_backward_data;
    using BackwardParameters = dnnl::inner_product_backward_weights;

    /// \param input the shape of a sample, {in_features}
    LinearPasses(const Context& context, const Linear& spec, const Shape& input, PostOp post_op)
        : engine_(context.engine),
          post_op_(post_op),
          out_(static_cast<dnnl::memory::dim>(spec.out_features)),
          weight_shape_{spec.out_features, input[0]} {}

    [[nodiscard]] const Shape& weight_shape() const { return weight_shape_; }

    /// Those of `input`, but for the first one: it has the in_features, or an image with as many elements.
    [[nodiscard]] Dims weight_dims(const Layout& input) const {
        Dims dims = dims_of(input);
        dims[0] = out_;
        return dims;
    }

    [[nodiscard]] Forward::primitive_desc describe_forward(const Layout& input, const Layout& weight) const {
        const auto from = [&](const Layout& source) {
            return describe<Forward>(engine_, post_op_, dnnl::prop_kind::forward_training, source, weight,
                                     any_layout({out_}), any_layout({dims_of(input)[0], out_}));
        };
        return describe_fast([&] { return from(input); }, [&] { return from(any_layout(dims_of(input))); });
    }

    [[nodiscard]] BackwardParameters::primitive_desc describe_gradients(
        const Forward::primitive_desc& forward) const {
        return describe_like(forward, [&](const Layouts& layouts) {
            return describe_backward<BackwardParameters>(engine_, forward, layouts.source, layouts.weight,
                                                         any_layout({out_}), layouts.output);
        });
    }

    [[nodiscard]] BackwardInput::primitive_desc describe_backward_input(
        const Forward::primitive_desc& forward) const {
        return describe_like(forward, [&](const Layouts& layouts) {
            return describe_backward<BackwardInput>(engine_, forward, layouts.source, layouts.weight,
                                                    layouts.output);
        });
    }

  private:
    /// The layouts of a pass: of the source, the weight and the output, or of their gradients.
    struct Layouts {
        Layout source;
        Layout weight;
        Layout output;
    };

    [[nodiscard]] static Layouts free_layouts(const Forward::primitive_desc& forward) {
        return {any_layout(dims_of(forward.src_desc())), any_layout(dims_of(forward.weights_desc())),
                any_layout(dims_of(forward.dst_desc()))};
    }

    /// Backward passes keep to the layouts of the forward pass. With a free choice oneDNN takes others, and
    /// would have the weight copied at each step.
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
    dnnl::memory::dim out_;
    Shape weight_shape_;
};

using LinearLayer = WeightedLayer<LinearPasses>;

}  // namespace dptk::nn::cpu
