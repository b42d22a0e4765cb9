/// Descriptions of layers, independent of the backend that computes them. A list of such descriptions, an
/// input shape and a seed define a Sequential on any backend. Names and defaults are PyTorch's.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn {

/// y = x·Wᵀ + b, for an input {in_features}; W is [out_features, in_features], b is [out_features].
struct Linear {
    std::size_t out_features;  ///< The number of elements of an output.
};

/// Cross-correlation with a square kernel and zero padding on all four sides, for an input {channels,
/// height, width}; the weight is [out_channels, channels, kernel_size, kernel_size], the bias
/// [out_channels].
struct Conv2d {
    std::size_t out_channels;  ///< The number of filters.
    std::size_t kernel_size;   ///< The height and width.
    std::size_t stride = 1;    ///< In both directions.
    std::size_t padding = 0;   ///< The zeros on each side.
};

/// max(x, 0), for any input.
struct ReLU {};

/// The largest value of each kernel_size × kernel_size window. Windows do not overlap; rows and columns
/// that do not fill a window are ignored. Of equal values the first one in row-major order gets the
/// gradient.
struct MaxPool2d {
    std::size_t kernel_size;  ///< The height and width, and the stride.
};

/// Reshapes any input to {features}, in row-major order.
struct Flatten {};

/// The description of a layer of any kind.
using LayerSpec = std::variant<Linear, Conv2d, ReLU, MaxPool2d, Flatten>;

/// Returns the name of a layer for messages, such as "Conv2d".
[[nodiscard]] std::string_view layer_name(const LayerSpec& spec) noexcept;

namespace detail {

using dptk::detail::shape_text;
using dptk::detail::text;

}  // namespace detail

/// Returns the shape of the output for inputs of the shape `input`, both without the batch dimension.
/// Throws ArgumentError if the layer does not fit the input.
[[nodiscard]] Shape output_shape(const LayerSpec& spec, const Shape& input);

/// Returns the input shape, followed by the output shape of each layer. Throws ArgumentError with the name
/// of the first layer that does not fit.
[[nodiscard]] std::vector<Shape> shapes_through(std::span<const LayerSpec> specs, const Shape& input_shape);

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/layers.ipp"
#endif
