/// Conv2d on images of few pixels, as sums of matrix products: one for each tap of the kernel and each row of
/// pixels, or with a stride, each pixel. oneDNN's convolutions with AVX2 leave most of the processor idle
/// there. The algorithm is kn2row of Anderson, Vasudevan, Keane and Gregg, "Low-memory GEMM-based convolution
/// algorithms for deep neural networks", 2017, without the products that only meet padding.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/openmp.hpp"
#include "dptk/nn/cpu/convolution.hpp"
#include "dptk/nn/cpu/product_plan.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// The matrix products of a convolution. All pixels at one place, of all samples, are consecutive rows of a
/// matrix, which has a column for each channel; the weight of a tap is a matrix with a row for each input
/// channel and a column for each output channel.
class TapProducts {
  public:
    /// Each thread computes some columns of the results, at least so many.
    static constexpr std::size_t fewest_columns = 32;

    [[nodiscard]] static std::size_t threads() {
        return static_cast<std::size_t>(std::max(dptk::detail::OpenMp::runtime().threads(), 1));
    }

    TapProducts(const Conv2d& conv, std::size_t batch, const Shape& input, const Shape& output)
        : in_(static_cast<Count>(input[0])),
          out_(static_cast<Count>(output[0])),
          in_rows_(static_cast<Count>(batch * input[1] * input[2])),
          out_rows_(static_cast<Count>(batch * output[1] * output[2])) {
        Count tap = 0;
        for (std::size_t ky = 0; ky < conv.kernel_size.height; ++ky) {
            for (std::size_t kx = 0; kx < conv.kernel_size.width; ++kx, ++tap) {
                const std::size_t before = products_.size();
                add(conv, {ky, kx}, tap, batch, input, output);
                if (products_.size() == before) in_padding_.push_back(tap);
            }
        }
    }

    /// Writes the results.
    void forward(const float* x, const float* weight, float* y) const {
        std::fill_n(y, out_rows_ * out_, 0.0F);
        in_parts(out_, [&](Count first, Count count, const Product& product) {
            return dnnl_sgemm('N', 'N', product.rows, count, in_, 1, x + product.x * in_, in_,
                              weight + product.tap * in_ * out_ + first, out_, 1,
                              y + product.y * out_ + first, out_);
        });
    }

    /// Writes the gradient of the input.
    void backward_input(const float* dy, const float* weight, float* dx) const {
        std::fill_n(dx, in_rows_ * in_, 0.0F);
        in_parts(in_, [&](Count first, Count count, const Product& product) {
            return dnnl_sgemm('N', 'T', product.rows, count, out_, 1, dy + product.y * out_, out_,
                              weight + (product.tap * in_ + first) * out_, out_, 1,
                              dx + product.x * in_ + first, in_);
        });
    }

    /// Writes the gradient of the weight.
    void backward_weight(const float* x, const float* dy, float* dweight) const {
        for (const Count tap : in_padding_) std::fill_n(dweight + tap * in_ * out_, in_ * out_, 0.0F);
        in_parts(in_, [&](Count first, Count count, const Product& product) {
            return dnnl_sgemm('T', 'N', count, out_, product.rows, 1, x + product.x * in_ + first, in_,
                              dy + product.y * out_, out_, product.is_first_of_tap ? 0.0F : 1.0F,
                              dweight + (product.tap * in_ + first) * out_, out_);
        });
    }

  private:
    using Count = dnnl::memory::dim;

    /// The product of a tap with `rows` rows, from row `x` of the input and row `y` of the output on.
    struct Product {
        Count tap, x, y, rows;
        bool is_first_of_tap;
    };

    /// Makes all products for a part of the columns, or rows, of their results, and the parts at the same
    /// time, on the threads that compute. multiply(first, count, product) returns oneDNN's status.
    template <class Multiply>
    void in_parts(Count columns, Multiply&& multiply) const {
        const Count parts =
            std::clamp<Count>(columns / static_cast<Count>(fewest_columns), 1, static_cast<Count>(threads()));
        std::atomic<dnnl_status_t> status = dnnl_success;
        dptk::detail::OpenMp::runtime().for_each(static_cast<std::size_t>(parts), [&](std::size_t part) {
            const Count begin = columns * static_cast<Count>(part) / parts;
            const Count end = columns * static_cast<Count>(part + 1) / parts;
            for (const Product& product : products_)
                if (const dnnl_status_t made = multiply(begin, end - begin, product); made != dnnl_success)
                    status = made;
        });
        dnnl::error::wrap_c_api(status, "could not multiply matrices");
    }

    /// Adds the products of the tap at `place` in the kernel.
    void add(const Conv2d& conv, const Size2d& place, Count tap, std::size_t batch, const Shape& input,
             const Shape& output) {
        const std::size_t first = products_.size();
        const auto count = [](std::size_t n) { return static_cast<Count>(n); };
        for (std::size_t oy = 0; oy < output[1]; ++oy) {
            const std::size_t iy =
                oy * conv.stride.height + place.height * conv.dilation.height - conv.padding.height;
            if (iy >= input[1]) continue;  // in the padding, also where the difference has wrapped around
            bool continues = false;
            for (std::size_t ox = 0; ox < output[2]; ++ox) {
                const std::size_t ix =
                    ox * conv.stride.width + place.width * conv.dilation.width - conv.padding.width;
                if (ix >= input[2]) continue;
                if (continues) {
                    products_.back().rows += count(batch);
                    continue;
                }
                products_.push_back({tap, count((iy * input[2] + ix) * batch),
                                     count((oy * output[2] + ox) * batch), count(batch),
                                     products_.size() == first});
                continues = conv.stride.width == 1;  // then the next pixels are neighbors as well
            }
        }
    }

    Count in_, out_;  // channels
    Count in_rows_, out_rows_;
    std::vector<Product> products_;
    std::vector<Count> in_padding_;  // taps without products
};

class SmallConv2dPlan final : public ProductPlan {
  public:
    /// Returns whether this plan is faster than oneDNN's convolution for an operation on inputs of a layout.
    [[nodiscard]] static bool is_faster(const Context& context, const OperationInfo& info,
                                        const Layout& input) {
        if (!is_small(info) || context.operand_type != ElementType::f32) return false;
        const std::size_t channels = std::min(info.inputs[0][0], info.output[0]);
        if (channels < TapProducts::fewest_columns * TapProducts::threads()) return false;
        const Conv2dPasses passes(context, info);
        const auto described = passes.describe_forward(input, any_layout(passes.weight_dims(input)));
        return std::string_view(described.impl_info_str()) == "jit:avx2";
    }

    /// Returns the layout of the weight, of {outputs, channels, height, width}: the matrices of the taps.
    [[nodiscard]] static Layout weight_layout(const Dims& dims) {
        return {dims, ElementType::f32, dnnl::memory::format_tag::cdba};
    }

    /// Returns whether the layer is a Conv2d on few pixels whose weight has this layout.
    [[nodiscard]] static bool has_weight(const Layer& layer) {
        if (!is_small(layer.info())) return false;
        const Layout weight = layer.weight().value_memory().get_desc();
        return weight == weight_layout(dims_of(weight));
    }

    SmallConv2dPlan(Layer& layer, const Layout& input)
        : ProductPlan(layer),
          input_(input),
          products_(std::get<Conv2d>(info().operation), static_cast<std::size_t>(dims_of(input)[0]),
                    info().inputs[0], info().output) {
        const Conv2dPasses passes(context(), info());
        output = passes.describe_forward(input, any_layout(passes.weight_dims(input))).dst_desc();
        source_ = add_converter(input, rows_layout(input), WorkspaceUse::kept);
        result_ = add_workspace(rows_layout(output), WorkspaceUse::forward);
        store_result_ = reorder(context(), result_, unbound(context(), output));
        use.keeps_inputs = !source_.copies();
    }

  private:
    [[nodiscard]] static bool is_small(const OperationInfo& info) {
        constexpr std::size_t most_pixels = 16, fewest_channels = 64;
        const auto* const conv = std::get_if<Conv2d>(&info.operation);
        return conv != nullptr && conv->groups == 1 &&
               conv->kernel_size.height * conv->kernel_size.width > 1 &&
               info.output[1] * info.output[2] <= most_pixels &&
               std::min(info.inputs[0][0], info.output[0]) >= fewest_channels;
    }

    /// Returns the layout in which the pixels at one place are consecutive rows.
    [[nodiscard]] static Layout rows_layout(const Layout& images) {
        const Dims dims = dims_of(images);
        const dnnl::memory::dim row = dims[1], pixel = dims[0] * row;
        return {dims, ElementType::f32, Dims{row, 1, dims[3] * pixel, pixel}};
    }

    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        output_gradient_ = add_converter(output_gradient, rows_layout(output), WorkspaceUse::backward);
        input_gradient_ = add_workspace(rows_layout(input_), WorkspaceUse::backward);
        store_input_gradient_ = reorder(context(), input_gradient_, unbound(context(), input_));
        return {input_};
    }

    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        const std::span<const float> x = floats(source_(arguments.inputs[0]));
        const std::span<float> y = floats(result_);
        products_.forward(x.data(), weight(), y.data());
        finish_rows(y);
        store_result_.set(DNNL_ARG_TO, arguments.output).run();
    }

    void do_backward_parameters(const Arguments& arguments, const Pass& /*pass*/) override {
        const std::span<const float> dy = floats(output_gradient_(arguments.output_gradient));
        products_.backward_weight(floats(source_.result()).data(), dy.data(), weight_gradient());
        sum_rows(dy);
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
        const std::span<const float> dy = floats(output_gradient_(arguments.output_gradient));
        const std::span<float> dx = floats(input_gradient_);
        products_.backward_input(dy.data(), weight(), dx.data());
        store_input_gradient_.set(DNNL_ARG_TO, arguments.input_gradients[0]).run();
    }

    Layout input_;
    TapProducts products_;
    Converter source_;
    dnnl::memory result_;
    Primitive store_result_;
    Converter output_gradient_;
    dnnl::memory input_gradient_;
    Primitive store_input_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
