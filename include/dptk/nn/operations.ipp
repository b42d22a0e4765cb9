#pragma once

#include "dptk/nn/operations.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/custom_operation.hpp"

namespace DPTK_NAMESPACE::nn {

namespace detail {

using dptk::detail::shape_text;
using dptk::detail::text;

template <class Option>
void require(bool holds, std::string_view operation, std::string_view expected, const Option& found) {
    if (!holds) throw ArgumentError(text(operation, ": expected ", expected, ", found ", found));
}

DPTK_INLINE void require_inputs(InputShapes inputs, std::size_t count, std::string_view operation) {
    require(inputs.size() == count, operation, text(count, count == 1 ? " input" : " inputs"), inputs.size());
}

[[nodiscard]] DPTK_INLINE const Shape& image_input(InputShapes inputs, std::string_view operation) {
    require_inputs(inputs, 1, operation);
    require(inputs[0].size() == 3, operation, "an input {channels, height, width}", shape_text(inputs[0]));
    return inputs[0];
}

[[nodiscard]] DPTK_INLINE Shape same_shape(InputShapes inputs, std::string_view operation) {
    require_inputs(inputs, 1, operation);
    return inputs[0];
}

/// Returns the number of positions of a window in one direction.
[[nodiscard]] DPTK_INLINE std::size_t positions(std::string_view operation, std::size_t size,
                                                std::size_t kernel, std::size_t stride, std::size_t padding,
                                                std::size_t dilation) {
    for (const std::size_t number : {kernel, stride, dilation})
        require(number > 0, operation, "a kernel_size, stride and dilation of at least 1", number);
    const std::size_t span = dilation * (kernel - 1) + 1;
    require(span <= size + 2 * padding, operation,
            text("an input that is, with its padding, not smaller than the window of ", span),
            size + 2 * padding);
    return (size + 2 * padding - span) / stride + 1;
}

DPTK_INLINE Shape pool_shape(std::string_view name, InputShapes inputs, const Size2d& kernel_size,
                             const Size2d& stride, const Size2d& padding) {
    const Shape& input = image_input(inputs, name);
    require(2 * padding.height <= kernel_size.height && 2 * padding.width <= kernel_size.width, name,
            "a padding of at most half a window", text(padding.height, " x ", padding.width));
    return {input[0], positions(name, input[1], kernel_size.height, stride.height, padding.height, 1),
            positions(name, input[2], kernel_size.width, stride.width, padding.width, 1)};
}

}  // namespace detail

DPTK_INLINE Shape Input::output_shape(InputShapes inputs) const {
    detail::require_inputs(inputs, 0, name);
    detail::require(!shape.empty() && element_count(shape) > 0, name, "a shape with elements",
                    detail::shape_text(shape));
    return shape;
}

DPTK_INLINE Shape Linear::output_shape(InputShapes inputs) const {
    detail::require_inputs(inputs, 1, name);
    detail::require(inputs[0].size() == 1, name, "an input {features} (flatten() makes one)",
                    detail::shape_text(inputs[0]));
    detail::require(out_features > 0, name, "at least 1 output feature", out_features);
    return {out_features};
}

DPTK_INLINE std::vector<ParameterSpec> Linear::parameters(InputShapes inputs) const {
    const std::size_t in_features = inputs[0][0];
    std::vector<ParameterSpec> all{
        {"weight", {out_features, in_features}, Initial::uniform, in_features, true}};
    if (bias) all.push_back({"bias", {out_features}, Initial::uniform, in_features, false});
    return all;
}

DPTK_INLINE std::size_t Linear::multiplications(InputShapes inputs) const {
    return out_features * inputs[0][0];
}

DPTK_INLINE Shape Conv2d::output_shape(InputShapes inputs) const {
    const Shape& input = detail::image_input(inputs, name);
    detail::require(out_channels > 0, name, "at least 1 output channel", out_channels);
    detail::require(
        groups > 0 && input[0] % groups == 0 && out_channels % groups == 0, name,
        detail::text("groups that divide the ", input[0], " input and ", out_channels, " output channels"),
        groups);
    return {
        out_channels,
        detail::positions(name, input[1], kernel_size.height, stride.height, padding.height, dilation.height),
        detail::positions(name, input[2], kernel_size.width, stride.width, padding.width, dilation.width)};
}

DPTK_INLINE std::vector<ParameterSpec> Conv2d::parameters(InputShapes inputs) const {
    const std::size_t channels = inputs[0][0] / groups;
    const std::size_t fan_in = channels * kernel_size.height * kernel_size.width;
    std::vector<ParameterSpec> all{{"weight",
                                    {out_channels, channels, kernel_size.height, kernel_size.width},
                                    Initial::uniform,
                                    fan_in,
                                    true}};
    if (bias) all.push_back({"bias", {out_channels}, Initial::uniform, fan_in, false});
    return all;
}

DPTK_INLINE std::size_t Conv2d::multiplications(InputShapes inputs) const {
    return element_count(output_shape(inputs)) * (inputs[0][0] / groups) * kernel_size.height *
           kernel_size.width;
}

DPTK_INLINE Shape BatchNorm2d::output_shape(InputShapes inputs) const {
    detail::require(eps >= 0, name, "an eps that is not negative", eps);
    detail::require(momentum >= 0 && momentum <= 1, name, "a momentum in [0, 1]", momentum);
    return detail::image_input(inputs, name);
}

DPTK_INLINE std::vector<ParameterSpec> BatchNorm2d::parameters(InputShapes inputs) const {
    const std::size_t channels = inputs[0][0];
    return {{"weight", {channels}, Initial::ones, 0, false}, {"bias", {channels}, Initial::zeros, 0, false}};
}

DPTK_INLINE std::vector<BufferSpec> BatchNorm2d::buffers(InputShapes inputs) const {
    const std::size_t channels = inputs[0][0];
    return {{"running_mean", {channels}, DType::f32, 0},
            {"running_var", {channels}, DType::f32, 1},
            {"num_batches_tracked", {}, DType::i64, 0}};
}

DPTK_INLINE Shape Softmax::output_shape(InputShapes inputs) const {
    Shape shape = detail::same_shape(inputs, name);
    detail::require(radix == 0 || shape[0] % radix == 0, name,
                    detail::text("a radix that divides the ", shape[0], " channels"), radix);
    return shape;
}

DPTK_INLINE Shape RadixSum::output_shape(InputShapes inputs) const {
    Shape shape = detail::same_shape(inputs, name);
    detail::require(radix > 0 && shape[0] % radix == 0, name,
                    detail::text("a radix that divides the ", shape[0], " channels"), radix);
    shape[0] /= radix;
    return shape;
}

DPTK_INLINE Shape Add::output_shape(InputShapes inputs) const {
    detail::require_inputs(inputs, 2, name);
    detail::require(inputs[0] == inputs[1], name,
                    detail::text("two inputs of the shape ", detail::shape_text(inputs[0])),
                    detail::shape_text(inputs[1]));
    return inputs[0];
}

DPTK_INLINE Shape Multiply::output_shape(InputShapes inputs) const {
    detail::require_inputs(inputs, 2, name);
    bool fits = inputs[0].size() == inputs[1].size();
    for (std::size_t i = 0; fits && i < inputs[0].size(); ++i)
        fits = inputs[1][i] == inputs[0][i] || inputs[1][i] == 1;
    detail::require(fits, name,
                    detail::text("a second input of the shape ", detail::shape_text(inputs[0]),
                                 ", in which sizes may be 1"),
                    detail::shape_text(inputs[1]));
    return inputs[0];
}

DPTK_INLINE Shape GlobalAvgPool2d::output_shape(InputShapes inputs) const {
    return {detail::image_input(inputs, name)[0], 1, 1};
}

DPTK_INLINE Shape Flatten::output_shape(InputShapes inputs) const {
    return {element_count(detail::same_shape(inputs, name))};
}

DPTK_INLINE Shape Dropout::output_shape(InputShapes inputs) const {
    detail::require(p >= 0 && p < 1, name, "a p in [0, 1)", p);
    return detail::same_shape(inputs, name);
}

DPTK_INLINE Shape output_shape_of(const Operation& operation, InputShapes inputs) {
    return std::visit(
        [&]<class Op>(const Op& one) -> Shape {
            if constexpr (PointwiseOperation<Op>)
                return detail::same_shape(inputs, Op::name);
            else if constexpr (std::same_as<Op, Custom>)
                return one.operation->output_shape(inputs);
            else
                return one.output_shape(inputs);
        },
        operation);
}

DPTK_INLINE std::vector<ParameterSpec> parameters_of(const Operation& operation, InputShapes inputs) {
    return std::visit(
        [&]<class Op>(const Op& one) -> std::vector<ParameterSpec> {
            if constexpr (std::same_as<Op, Custom>)
                return one.operation->parameters(inputs);
            else if constexpr (requires { one.parameters(inputs); })
                return one.parameters(inputs);
            else
                return {};
        },
        operation);
}

DPTK_INLINE std::vector<BufferSpec> buffers_of(const Operation& operation, InputShapes inputs) {
    const auto* const norm = std::get_if<BatchNorm2d>(&operation);
    return norm != nullptr ? norm->buffers(inputs) : std::vector<BufferSpec>{};
}

DPTK_INLINE std::size_t multiplications_of(const Operation& operation, InputShapes inputs) {
    return std::visit(
        [&](const auto& one) -> std::size_t {
            if constexpr (requires { one.multiplications(inputs); }) return one.multiplications(inputs);
            return 0;
        },
        operation);
}

DPTK_INLINE std::string_view operation_name(const Operation& operation) {
    return std::visit(
        []<class Op>(const Op& one) -> std::string_view {
            if constexpr (std::same_as<Op, Custom>)
                return one.operation->name();
            else
                return Op::name;
        },
        operation);
}

}  // namespace DPTK_NAMESPACE::nn
