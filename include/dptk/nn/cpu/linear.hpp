/// Linear with oneDNN's inner product. After convolutions, Linear accepts the blocked images that they
/// return, and has its weight in a matching blocked layout, so that Flatten costs nothing.
#pragma once

#include <variant>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/weighted_plan.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// See WeightedPlan.
class LinearPasses {
    /// Describes a backward pass with the layouts of the forward pass. If oneDNN could choose freely, it
    /// would choose other layouts, and the weight would be copied at each step.
    template <class Describe>
    [[nodiscard]] static auto describe_like(const dnnl::inner_product_forward::primitive_desc& forward,
                                            Describe&& with) {
        const Layout source = forward.src_desc(), weight = forward.weights_desc(),
                     result = forward.dst_desc();
        return describe_fast([&] { return with(source, weight, result); },
                             [&] { return with(any_order(source), any_order(weight), any_order(result)); });
    }

  public:
    using Forward = dnnl::inner_product_forward;
    using BackwardInput = dnnl::inner_product_backward_data;
    using BackwardParameters = dnnl::inner_product_backward_weights;

    LinearPasses(const Context& context, const OperationInfo& info)
        : engine_(context.engine),
          post_op_(post_op_of(info)),
          out_(static_cast<dnnl::memory::dim>(info.output[0])),
          bias_(bias_layout(std::get<Linear>(info.operation).bias, info.output[0])) {}

    /// Returns the dimensions of `input`, with the first one replaced by out_features. A sample of `input` is
    /// in_features numbers or an image with as many elements.
    [[nodiscard]] Dims weight_dims(const Layout& input) const {
        Dims dims = dims_of(input);
        dims[0] = out_;
        return dims;
    }

    [[nodiscard]] auto describe_forward(const Layout& input, const Layout& weight) const {
        const auto from = [&](const Layout& source) {
            return describe<Forward>(engine_, post_op_, dnnl::prop_kind::forward_training, source, weight,
                                     bias_, any_layout({dims_of(input)[0], out_}));
        };
        return describe_fast([&] { return from(input); }, [&] { return from(any_layout(dims_of(input))); });
    }

    [[nodiscard]] auto describe_gradients(const Forward::primitive_desc& forward) const {
        return describe_like(forward, [&](const Layout& source, const Layout& weight, const Layout& result) {
            return describe_backward<BackwardParameters>(engine_, forward, source, weight, bias_, result);
        });
    }

    [[nodiscard]] auto describe_backward_input(const Forward::primitive_desc& forward) const {
        return describe_like(forward, [&](const Layout& source, const Layout& weight, const Layout& result) {
            return describe_backward<BackwardInput>(engine_, forward, source, weight, result);
        });
    }

  private:
    dnnl::engine engine_;
    PostOp post_op_;
    dnnl::memory::dim out_;
    Layout bias_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
