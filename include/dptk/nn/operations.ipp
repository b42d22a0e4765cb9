#pragma once

#include "dptk/nn/operations.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn::detail {

using dptk::detail::shape_text;
using dptk::detail::text;

/// Throws ArgumentError unless `holds`.
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

/// Returns the only input, whose first dimension `groups` divides.
[[nodiscard]] DPTK_INLINE const Shape& grouped_input(InputShapes inputs, std::size_t groups,
                                                     std::string_view operation) {
    require_inputs(inputs, 1, operation);
    const std::size_t channels = inputs[0][0];
    require(groups > 0 && channels % groups == 0, operation,
            text("a radix that divides the ", channels, " channels"), groups);
    return inputs[0];
}

/// Returns the number of positions of a window in one direction.
[[nodiscard]] DPTK_INLINE std::size_t positions(std::string_view operation, std::size_t size,
                                                std::size_t kernel, std::size_t stride, std::size_t padding,
                                                std::size_t dilation) {
    constexpr std::size_t most = std::size_t{1} << 20;  // so that no product below is too large
    for (const std::size_t number : {kernel, stride, dilation})
        require(number > 0 && number <= most, operation,
                text("a kernel_size, stride and dilation of 1 to ", most), number);
    require(padding <= most, operation, text("a padding of at most ", most), padding);
    const std::size_t span = dilation * (kernel - 1) + 1;
    require(span <= size + 2 * padding, operation,
            text("an input that is, with its padding, not smaller than the window of ", span),
            size + 2 * padding);
    return (size + 2 * padding - span) / stride + 1;
}

/// Returns the shape after windows that move over images.
[[nodiscard]] DPTK_INLINE Shape shape_of_windows(std::string_view operation, const Shape& input,
                                                 std::size_t channels, const Size2d& kernel,
                                                 const Size2d& stride, const Size2d& padding,
                                                 const Size2d& dilation) {
    return {channels,
            positions(operation, input[1], kernel.height, stride.height, padding.height, dilation.height),
            positions(operation, input[2], kernel.width, stride.width, padding.width, dilation.width)};
}

/// Returns a weight, whose first dimension is the outputs, and perhaps a bias.
[[nodiscard]] DPTK_INLINE std::vector<ParameterSpec> weight_and_bias(const Shape& weight, bool has_bias) {
    const std::size_t fan_in = element_count(weight) / weight[0];
    std::vector<ParameterSpec> all{{"weight", weight, Initial::uniform, fan_in, true}};
    if (has_bias) all.push_back({"bias", {weight[0]}, Initial::uniform, fan_in, false});
    return all;
}

// ---- output shapes

[[nodiscard]] DPTK_INLINE Shape shape_after(const Input& op, InputShapes inputs) {
    require_inputs(inputs, 0, op.name);
    require(!op.shape.empty() && element_count(op.shape) > 0, op.name, "a shape with elements",
            shape_text(op.shape));
    return op.shape;
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const Linear& op, InputShapes inputs) {
    require_inputs(inputs, 1, op.name);
    require(inputs[0].size() == 1, op.name, "an input {features} (flatten() makes one)",
            shape_text(inputs[0]));
    require(op.out_features > 0, op.name, "at least 1 output feature", op.out_features);
    return {op.out_features};
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const Conv2d& op, InputShapes inputs) {
    const Shape& in = image_input(inputs, op.name);
    require(op.out_channels > 0, op.name, "at least 1 output channel", op.out_channels);
    require(op.groups > 0 && in[0] % op.groups == 0 && op.out_channels % op.groups == 0, op.name,
            text("groups that divide the ", in[0], " input and ", op.out_channels, " output channels"),
            op.groups);
    return shape_of_windows(op.name, in, op.out_channels, op.kernel_size, op.stride, op.padding, op.dilation);
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const BatchNorm2d& op, InputShapes inputs) {
    require(op.eps >= 0, op.name, "an eps that is not negative", op.eps);
    require(op.momentum >= 0 && op.momentum <= 1, op.name, "a momentum in [0, 1]", op.momentum);
    return image_input(inputs, op.name);
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const Softmax& op, InputShapes inputs) {
    return grouped_input(inputs, op.radix == 0 ? 1 : op.radix, op.name);
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const RadixSum& op, InputShapes inputs) {
    Shape shape = grouped_input(inputs, op.radix, op.name);
    shape[0] /= op.radix;
    return shape;
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const Add& op, InputShapes inputs) {
    require_inputs(inputs, 2, op.name);
    require(inputs[0] == inputs[1], op.name, text("two inputs of the shape ", shape_text(inputs[0])),
            shape_text(inputs[1]));
    return inputs[0];
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const Multiply& op, InputShapes inputs) {
    require_inputs(inputs, 2, op.name);
    bool fits = inputs[0].size() == inputs[1].size();
    for (std::size_t i = 0; fits && i < inputs[0].size(); ++i)
        fits = inputs[1][i] == inputs[0][i] || inputs[1][i] == 1;
    require(fits, op.name,
            text("a second input of the shape ", shape_text(inputs[0]), ", in which sizes may be 1"),
            shape_text(inputs[1]));
    return inputs[0];
}

template <PoolKind kind>
[[nodiscard]] Shape shape_after(const Pool2d<kind>& op, InputShapes inputs) {
    const Shape& in = image_input(inputs, op.name);
    Shape shape = shape_of_windows(op.name, in, in[0], op.kernel_size, op.stride, op.padding, 1);
    require(2 * op.padding.height <= op.kernel_size.height && 2 * op.padding.width <= op.kernel_size.width,
            op.name, "a padding of at most half a window", text(op.padding.height, " x ", op.padding.width));
    return shape;
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const GlobalAvgPool2d& op, InputShapes inputs) {
    return {image_input(inputs, op.name)[0], 1, 1};
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const Flatten& op, InputShapes inputs) {
    require_inputs(inputs, 1, op.name);
    return {element_count(inputs[0])};
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const Dropout& op, InputShapes inputs) {
    require(op.p >= 0 && op.p < 1, op.name, "a p in [0, 1)", op.p);
    require_inputs(inputs, 1, op.name);
    return inputs[0];
}

template <PointwiseOperation Op>
[[nodiscard]] Shape shape_after(const Op& op, InputShapes inputs) {
    require_inputs(inputs, 1, op.name);
    return inputs[0];
}

[[nodiscard]] DPTK_INLINE Shape shape_after(const Custom& op, InputShapes inputs) {
    if (op.operation == nullptr) throw ArgumentError("expected an operation, found null");
    Shape shape = op.operation->output_shape(inputs);
    const std::string_view name = op.operation->name();
    require(!shape.empty() && element_count(shape) > 0, name, "an output shape with elements",
            shape_text(shape));
    for (const ParameterSpec& parameter : op.operation->parameters(inputs))
        require(parameter.initial != Initial::uniform || parameter.fan_in > 0, name,
                text("a fan_in of at least 1 for the parameter ", parameter.name), parameter.fan_in);
    return shape;
}

}  // namespace DPTK_NAMESPACE::nn::detail

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE Shape output_shape_of(const Operation& operation, InputShapes inputs) {
    return std::visit([&](const auto& one) { return detail::shape_after(one, inputs); }, operation);
}

DPTK_INLINE std::vector<ParameterSpec> parameters_of(const Operation& operation, InputShapes inputs) {
    if (const auto* const linear = std::get_if<Linear>(&operation))
        return detail::weight_and_bias({linear->out_features, inputs[0][0]}, linear->bias);
    if (const auto* const conv = std::get_if<Conv2d>(&operation))
        return detail::weight_and_bias({conv->out_channels, inputs[0][0] / conv->groups,
                                        conv->kernel_size.height, conv->kernel_size.width},
                                       conv->bias);
    if (std::holds_alternative<BatchNorm2d>(operation))
        return {{"weight", {inputs[0][0]}, Initial::ones, 0, false},
                {"bias", {inputs[0][0]}, Initial::zeros, 0, false}};
    if (const auto* const own = std::get_if<Custom>(&operation)) return own->operation->parameters(inputs);
    return {};
}

DPTK_INLINE std::vector<BufferSpec> buffers_of(const Operation& operation, InputShapes inputs) {
    if (!std::holds_alternative<BatchNorm2d>(operation)) return {};
    return {{"running_mean", {inputs[0][0]}, DType::f32, 0},
            {"running_var", {inputs[0][0]}, DType::f32, 1},
            {"num_batches_tracked", {}, DType::i64, 0}};
}

DPTK_INLINE std::size_t multiplications_of(const Operation& operation, InputShapes inputs) {
    if (!std::holds_alternative<Linear>(operation) && !std::holds_alternative<Conv2d>(operation)) return 0;
    return element_count(output_shape_of(operation, inputs)) * parameters_of(operation, inputs)[0].fan_in;
}

DPTK_INLINE std::string_view operation_name(const Operation& operation) {
    if (const auto* const own = std::get_if<Custom>(&operation)) return own->operation->name();
    return std::visit([](const auto& one) -> std::string_view { return one.name; }, operation);
}

}  // namespace DPTK_NAMESPACE::nn
