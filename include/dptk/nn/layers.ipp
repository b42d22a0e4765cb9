#pragma once

#include "dptk/nn/layers.hpp"

#include <iterator>

#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE std::string_view layer_name(const LayerSpec& spec) noexcept {
    constexpr std::string_view names[] = {"Linear", "Conv2d", "ReLU", "MaxPool2d", "Flatten"};
    static_assert(std::size(names) == std::variant_size_v<LayerSpec>);
    return names[spec.index()];
}

}  // namespace DPTK_NAMESPACE::nn

namespace DPTK_NAMESPACE::nn::detail {

DPTK_INLINE void require_image(std::string_view layer, const Shape& input) {
    if (input.size() != 3)
        throw ArgumentError(
            text(layer, " needs an input {channels, height, width}, but gets ", shape_text(input)));
}

DPTK_INLINE void require_positive(std::string_view layer, std::string_view option, std::size_t value) {
    if (value == 0) throw ArgumentError(text(layer, ": ", option, " must be at least 1, got 0"));
}

DPTK_INLINE Shape shape_after(const Linear& linear, const Shape& input) {
    require_positive("Linear", "out_features", linear.out_features);
    if (input.size() != 1)
        throw ArgumentError(text("Linear needs an input {features}, but gets ", shape_text(input),
                                 "; put a Flatten{} before it"));
    return {linear.out_features};
}

DPTK_INLINE Shape shape_after(const Conv2d& conv, const Shape& input) {
    require_image("Conv2d", input);
    require_positive("Conv2d", "out_channels", conv.out_channels);
    require_positive("Conv2d", "kernel_size", conv.kernel_size);
    require_positive("Conv2d", "stride", conv.stride);
    const auto positions = [&](std::size_t size) {
        const std::size_t padded = size + 2 * conv.padding;
        if (conv.kernel_size > padded)
            throw ArgumentError(text("Conv2d: a kernel of ", conv.kernel_size, " x ", conv.kernel_size,
                                     " is larger than the input ", shape_text(input), " with a padding of ",
                                     conv.padding));
        return (padded - conv.kernel_size) / conv.stride + 1;
    };
    return {conv.out_channels, positions(input[1]), positions(input[2])};
}

DPTK_INLINE Shape shape_after(const ReLU&, const Shape& input) {
    return input;
}

DPTK_INLINE Shape shape_after(const MaxPool2d& pool, const Shape& input) {
    require_image("MaxPool2d", input);
    require_positive("MaxPool2d", "kernel_size", pool.kernel_size);
    if (pool.kernel_size > input[1] || pool.kernel_size > input[2])
        throw ArgumentError(text("MaxPool2d: a window of ", pool.kernel_size, " x ", pool.kernel_size,
                                 " is larger than the input ", shape_text(input)));
    return {input[0], input[1] / pool.kernel_size, input[2] / pool.kernel_size};
}

DPTK_INLINE Shape shape_after(const Flatten&, const Shape& input) {
    return {element_count(input)};
}

}  // namespace DPTK_NAMESPACE::nn::detail

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE Shape output_shape(const LayerSpec& spec, const Shape& input) {
    if (input.empty() || element_count(input) == 0)
        throw ArgumentError(detail::text(layer_name(spec), ": the input shape ", detail::shape_text(input),
                                         " has no elements"));
    return std::visit([&](const auto& layer) { return detail::shape_after(layer, input); }, spec);
}

DPTK_INLINE std::vector<Shape> shapes_through(std::span<const LayerSpec> specs, const Shape& input_shape) {
    if (specs.empty()) throw ArgumentError("a network needs at least one layer");
    std::vector<Shape> shapes{input_shape};
    for (std::size_t i = 0; i < specs.size(); ++i) {
        try {
            shapes.push_back(output_shape(specs[i], shapes.back()));
        } catch (const ArgumentError& error) {
            throw ArgumentError(detail::text("layer ", i, ": ", error.what()));
        }
    }
    return shapes;
}

}  // namespace DPTK_NAMESPACE::nn
