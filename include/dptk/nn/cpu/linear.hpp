/// Linear with oneDNN's inner product. After convolutions, Linear accepts the blocked images that they
/// return, and has its weight in a matching blocked layout, so that Flatten costs nothing.
#pragma once

#include <variant>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/weighted_plan.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// See WeightedPlan.
class LinearPasses {
    /// The element types of a backward pass.
    struct Types {
        ElementType source, weight, result;
    };

    /// Describes a backward pass with the layouts of the forward pass. If oneDNN could choose freely, it
    /// would choose other layouts, and the weight would be copied at each step. With bf16 it is copied
    /// anyway.
    template <class Describe>
    [[nodiscard]] auto describe_like(const dnnl::inner_product_forward::primitive_desc& forward, Types types,
                                     Describe&& with) const {
        const Layout source = forward.src_desc(), weight = forward.weights_desc(),
                     result = forward.dst_desc();
        const auto free = [&] {
            return with(any_order(source, types.source), any_order(weight, types.weight),
                        any_order(result, types.result));
        };
        if (operand_ != ElementType::f32) return free();
        return describe_fast([&] { return with(source, weight, result); }, free);
    }

  public:
    using Forward = dnnl::inner_product_forward;
    using BackwardInput = dnnl::inner_product_backward_data;
    using BackwardParameters = dnnl::inner_product_backward_weights;

    LinearPasses(const Context& context, const OperationInfo& info)
        : engine_(context.engine),
          post_op_(post_op_of(info)),
          operand_(context.operand_type),
          out_(static_cast<dnnl::memory::dim>(info.output[0])),
          bias_(bias_layout(std::get<Linear>(info.operation).bias, info.output[0])) {}

    [[nodiscard]] ElementType operand_type() const noexcept { return operand_; }

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
        const auto free = [&] { return from(any_order(input, operand_)); };
        if (operand_ != ElementType::f32) return free();
        return describe_fast([&] { return from(input); }, free);
    }

    [[nodiscard]] auto describe_gradients(const Forward::primitive_desc& forward) const {
        return describe_like(forward, {operand_, ElementType::f32, operand_},
                             [&](const Layout& source, const Layout& weight, const Layout& result) {
                                 return describe_backward<BackwardParameters>(engine_, forward, source,
                                                                              weight, bias_, result);
                             });
    }

    [[nodiscard]] auto describe_backward_input(const Forward::primitive_desc& forward) const {
        return describe_like(forward, {ElementType::f32, operand_, operand_},
                             [&](const Layout& source, const Layout& weight, const Layout& result) {
                                 return describe_backward<BackwardInput>(engine_, forward, source, weight,
                                                                         result);
                             });
    }

  private:
    dnnl::engine engine_;
    PostOp post_op_;
    ElementType operand_;
    dnnl::memory::dim out_;
    Layout bias_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
