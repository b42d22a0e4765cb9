/// Descriptions of layers: what a network consists of, without saying who computes it. A list of them, an
/// input shape and a seed make a Sequential on any backend. Names and defaults are PyTorch's.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn {

/// y = x·Wᵀ + b, for an input {in_features}; W is [out_features, in_features], b is [out_features].
struct Linear {
    std::size_t out_features;  ///< Elements of an output.
};

/// Cross-correlation with a square kernel and zero padding on all four sides, for an input {channels, height,
/// width}; the weight is [out_channels, channels, kernel_size, kernel_size], the bias [out_channels].
struct Conv2d {
    std::size_t out_channels;  ///< Filters.
    std::size_t kernel_size;   ///< Of both sides.
    std::size_t stride = 1;    ///< In both directions.
    std::size_t padding = 0;   ///< Zeros on each side.
};

/// max(x, 0), for any input.
struct ReLU {};

/// The largest value of each kernel_size × kernel_size window. Windows do not overlap; rows and columns that
/// do not fill one are left out. Where values tie, the first one in row-major order gets the gradient.
struct MaxPool2d {
    std::size_t kernel_size;  ///< Of both sides, and the stride.
};

/// Any input as {features}, in row-major order.
struct Flatten {};

/// A layer of any of these kinds.
using LayerSpec = std::variant<Linear, Conv2d, ReLU, MaxPool2d, Flatten>;

/// "Conv2d" and so on, for messages.
[[nodiscard]] inline std::string_view layer_name(const LayerSpec& spec) noexcept {
    constexpr std::string_view names[] = {"Linear", "Conv2d", "ReLU", "MaxPool2d", "Flatten"};
    static_assert(std::size(names) == std::variant_size_v<LayerSpec>);
    return names[spec.index()];
}

namespace detail {

using dptk::detail::shape_text;
using dptk::detail::text;

inline void require_image(std::string_view layer, const Shape& input) {
    if (input.size() != 3)
        throw ArgumentError(
            text(layer, " needs an input {channels, height, width}, but gets ", shape_text(input)));
}

inline void require_positive(std::string_view layer, std::string_view option, std::size_t value) {
    if (value == 0) throw ArgumentError(text(layer, ": ", option, " must be at least 1"));
}

inline Shape shape_after(const Linear& linear, const Shape& input) {
    require_positive("Linear", "out_features", linear.out_features);
    if (input.size() != 1)
        throw ArgumentError(text("Linear needs an input {features}, but gets ", shape_text(input),
                                 "; put a Flatten{} before it"));
    return {linear.out_features};
}

inline Shape shape_after(const Conv2d& conv, const Shape& input) {
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

inline Shape shape_after(const ReLU&, const Shape& input) {
    return input;
}

inline Shape shape_after(const MaxPool2d& pool, const Shape& input) {
    require_image("MaxPool2d", input);
    require_positive("MaxPool2d", "kernel_size", pool.kernel_size);
    if (pool.kernel_size > input[1] || pool.kernel_size > input[2])
        throw ArgumentError(text("MaxPool2d: a window of ", pool.kernel_size, " x ", pool.kernel_size,
                                 " is larger than the input ", shape_text(input)));
    return {input[0], input[1] / pool.kernel_size, input[2] / pool.kernel_size};
}

inline Shape shape_after(const Flatten&, const Shape& input) {
    return {element_count(input)};
}

}  // namespace detail

/// The shape of the output for inputs of the shape `input`, both without the batch dimension.
/// \throws ArgumentError where the layer does not fit the input
[[nodiscard]] inline Shape output_shape(const LayerSpec& spec, const Shape& input) {
    if (input.empty() || element_count(input) == 0)
        throw ArgumentError(detail::text(layer_name(spec), ": the input shape ", detail::shape_text(input),
                                         " has no elements"));
    return std::visit([&](const auto& layer) { return detail::shape_after(layer, input); }, spec);
}

/// The shapes that a sample goes through: the input's, and then the output's of each layer.
/// \throws ArgumentError that names the layer which does not fit
[[nodiscard]] inline std::vector<Shape> shapes_through(std::span<const LayerSpec> specs,
                                                       const Shape& input_shape) {
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

}  // namespace dptk::nn
