/// Linear with padding between the rows of its weight, where oneDNN has nothing but plain matrix products: if
/// the rows begin a multiple of 2 KiB apart, their elements compete for few places in the cache, and products
/// take up to twice as long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/linear.hpp"
#include "dptk/nn/cpu/product_plan.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class PaddedLinearPlan final : public ProductPlan {
  public:
    /// Returns whether this plan is faster than oneDNN's inner product for a Linear on inputs of a layout.
    [[nodiscard]] static bool is_faster(const Context& context, const OperationInfo& info,
                                        const Layout& input) {
        const LinearPasses passes(context, info);
        const Dims weight = passes.weight_dims(input);
        if (context.operand_type != ElementType::f32 || !compete(weight) ||
            input != row_major_layout(dims_of(input)))
            return false;
        const auto described = passes.describe_forward(input, any_layout(weight));
        return std::string_view(described.impl_info_str()) == "x64:gemm:jit";
    }

    /// Returns the layout of the weight, of {outputs, inputs}: a row for each input.
    [[nodiscard]] static Layout weight_layout(const Dims& dims) {
        return columns_layout(dims, dims[0] + padding);
    }

    /// Returns whether the layer is a Linear whose weight has this layout.
    [[nodiscard]] static bool has_weight(const Layer& layer) {
        if (!std::holds_alternative<Linear>(layer.info().operation)) return false;
        const Layout weight = layer.weight().value_memory().get_desc();
        return compete(dims_of(weight)) && weight == weight_layout(dims_of(weight));
    }

    PaddedLinearPlan(Layer& layer, const Layout& input)
        : ProductPlan(layer),
          batch_(dims_of(input)[0]),
          in_(dims_of(input)[1]),
          out_(static_cast<Count>(info().output[0])) {
        output = row_major_layout({batch_, out_});
        source_ = add_converter(input, row_major_layout({batch_, in_}), WorkspaceUse::kept);
        use.keeps_inputs = !source_.copies();
    }

  private:
    using Count = dnnl::memory::dim;
    static constexpr Count padding = 16;  // elements: 64 bytes

    /// Returns whether the rows of a weight of {outputs, inputs} compete for places without padding.
    [[nodiscard]] static bool compete(const Dims& weight) {
        constexpr Count distance = 512;  // elements: 2 KiB
        return weight.size() == 2 && weight[0] % distance == 0 && weight[1] > 1;
    }

    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        output_gradient_ = add_converter(output_gradient, output, WorkspaceUse::backward);
        return {row_major_layout({batch_, in_})};
    }

    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        const std::span<float> y = floats(arguments.output);
        multiply('N', 'N', batch_, out_, in_, floats(source_(arguments.inputs[0])).data(), in_, weight(),
                 row_, y.data(), out_);
        finish_rows(y);
    }

    void do_backward_parameters(const Arguments& arguments, const Pass& /*pass*/) override {
        const std::span<const float> dy = floats(output_gradient_(arguments.output_gradient));
        float* const gradient = weight_gradient();
        multiply('T', 'N', in_, out_, batch_, floats(source_.result()).data(), in_, dy.data(), out_, gradient,
                 row_);
        for (Count row = 0; row < in_; ++row) std::fill_n(gradient + row * row_ + out_, padding, 0.0F);
        sum_rows(dy);
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
        const std::span<const float> dy = floats(output_gradient_(arguments.output_gradient));
        multiply('N', 'T', batch_, in_, out_, dy.data(), out_, weight(), row_,
                 floats(arguments.input_gradients[0]).data(), in_);
    }

    /// Computes c = a b, with row-major matrices: a, or its transpose, has `m` rows and `k` columns.
    static void multiply(char transpose_a, char transpose_b, Count m, Count n, Count k, const float* a,
                         Count a_row, const float* b, Count b_row, float* c, Count c_row) {
        dnnl::error::wrap_c_api(
            dnnl_sgemm(transpose_a, transpose_b, m, n, k, 1, a, a_row, b, b_row, 0, c, c_row),
            "could not multiply matrices");
    }

    Count batch_, in_, out_;
    Count row_ = out_ + padding;  // elements from the beginning of a row of the weight to that of the next
    Converter source_;
    Converter output_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
