/// The operations of a Graph. Each says once, for all backends, what shape its output has, which parameters
/// and buffers it has, and how many multiplications it takes. Names and defaults are PyTorch's; kernel sizes
/// have defaults here.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/pointwise.hpp"

namespace DPTK_NAMESPACE::nn {

/// A height and a width. A single number stands for both.
struct Size2d {
    std::size_t height;  ///< The size in the vertical direction.
    std::size_t width;   ///< The size in the horizontal direction.

    /// Makes a square.
    // NOLINTNEXTLINE(google-explicit-constructor): {.kernel_size = 3}
    constexpr Size2d(std::size_t both) noexcept : height(both), width(both) {}
    /// Makes a rectangle.
    constexpr Size2d(std::size_t height_, std::size_t width_) noexcept : height(height_), width(width_) {}

    friend constexpr bool operator==(const Size2d&, const Size2d&) = default;
};

/// How a parameter is initialized.
enum class Initial {
    uniform,  ///< U(-1/√fan_in, 1/√fan_in), PyTorch's distribution for Linear and Conv2d: see
              ///< initial_values().
    zeros,    ///< All 0.
    ones      ///< All 1.
};

/// A parameter of an operation.
struct ParameterSpec {
    std::string name;        ///< "weight"; in Graph::parameters(), "layer1.0.conv1.weight".
    Shape shape;             ///< PyTorch's shape.
    Initial initial;         ///< The first values.
    std::size_t fan_in = 0;  ///< The number of inputs of one output, for Initial::uniform.
    bool decays = true;      ///< Whether weight decay usually applies: not to biases, and not in norms.
};

/// Values of an operation that are no parameters, but belong to the model: the statistics of a batch norm.
struct BufferSpec {
    std::string name;          ///< "running_mean"; in Graph::buffers(), with the operation's name.
    Shape shape;               ///< PyTorch's shape.
    DType dtype = DType::f32;  ///< The type of the elements.
    double initial = 0;        ///< The first value of each element.
};

/// The shapes of an operation's inputs, without the batch dimension.
using InputShapes = std::span<const Shape>;

// The options of each operation. What they mean for shapes, parameters and buffers is in operations.ipp.

/// An input of the graph.
struct Input {
    Shape shape;  ///< The shape, without the batch dimension.

    static constexpr std::string_view name = "Input";  ///< For messages.
};

/// y = x·Wᵀ + b, for an input {in_features}; W is [out_features, in_features], b is [out_features].
struct Linear {
    std::size_t out_features;  ///< The number of elements of an output.
    bool bias = true;          ///< Whether there is a b.

    static constexpr std::string_view name = "Linear";  ///< For messages.
};

/// Cross-correlation with zero padding on all sides, for an input {channels, height, width}. The output has
/// ⌊(size + 2 padding - dilation (kernel - 1) - 1) / stride⌋ + 1 rows and columns. The weight is
/// [out_channels, channels / groups, kernel height, kernel width], the bias [out_channels].
struct Conv2d {
    std::size_t out_channels;  ///< The number of filters.
    Size2d kernel_size = 3;    ///< The size of a filter.
    Size2d stride = 1;         ///< The distance between two positions of the filter.
    Size2d padding = 0;        ///< The zeros on each side.
    Size2d dilation = 1;       ///< The distance between two inputs of the filter.
    /// The number of groups, which must divide both numbers of channels. Filters of a group see only the
    /// channels of the group; with as many groups as channels, the convolution is depthwise.
    std::size_t groups = 1;
    bool bias = true;  ///< Whether there is a bias.

    static constexpr std::string_view name = "Conv2d";  ///< For messages.
};

/// (x - mean) / √(variance + eps) · weight + bias for each channel of an input {channels, height, width}. In
/// training, mean and biased variance are those of the batch, and running = (1 - momentum) · running +
/// momentum · batch, with the batch's unbiased variance. In evaluation, mean and variance are the running
/// ones.
struct BatchNorm2d {
    double eps = 1e-5;             ///< Added to the variance.
    double momentum = 0.1;         ///< The fraction of a batch in the running statistics.
    bool is_synchronized = false;  ///< Whether the statistics are those of the batches of all ranks.

    static constexpr std::string_view name = "BatchNorm2d";  ///< For messages.
};

/// exp(x) / Σ exp(x), over the first dimension after the batch: dim=1 in PyTorch. With a radix, that
/// dimension has `radix` groups of equally many channels, and the sum is over the channels at one place of
/// each group: the r-softmax of ResNeSt's split attention.
struct Softmax {
    std::size_t radix = 0;  ///< The number of groups; 0 means that each channel is a group.

    static constexpr std::string_view name = "Softmax";  ///< For messages.
};

/// The sum of `radix` groups of channels: {radix · channels, ...} becomes {channels, ...}.
struct RadixSum {
    std::size_t radix = 2;  ///< The number of groups.

    static constexpr std::string_view name = "RadixSum";  ///< For messages.
};

/// The sum of two inputs of one shape.
struct Add {
    static constexpr std::string_view name = "Add";  ///< For messages.
};

/// The product of two inputs of equally many dimensions. A dimension of size 1 of the second input is
/// repeated.
struct Multiply {
    static constexpr std::string_view name = "Multiply";  ///< For messages.
};

/// What a pool computes of each window.
enum class PoolKind {
    max,  ///< The largest value; the first one in row-major order gets the gradient.
    avg   ///< The mean, in which padding counts as zeros.
};

/// The largest value, or the mean, of each window of an input {channels, height, width}.
template <PoolKind kind>
struct Pool2d {
    Size2d kernel_size = 2;       ///< The size of a window.
    Size2d stride = kernel_size;  ///< The distance between two windows.
    Size2d padding = 0;  ///< The elements on each side: -∞ for max, 0 for avg. At most half a window.

    /// For messages.
    static constexpr std::string_view name = kind == PoolKind::max ? "MaxPool2d" : "AvgPool2d";
};

/// The largest value of each window.
using MaxPool2d = Pool2d<PoolKind::max>;
/// The mean of each window.
using AvgPool2d = Pool2d<PoolKind::avg>;

/// The mean of each channel, {channels, 1, 1}.
struct GlobalAvgPool2d {
    static constexpr std::string_view name = "GlobalAvgPool2d";  ///< For messages.
};

/// Any input as {features}, in row-major order.
struct Flatten {
    static constexpr std::string_view name = "Flatten";  ///< For messages.
};

/// In training, sets each element to 0 with probability p, and divides the others by 1 - p.
struct Dropout {
    double p = 0.5;  ///< In [0, 1).

    static constexpr std::string_view name = "Dropout";  ///< For messages.
};

template <std::floating_point T>
struct HostCall;  // in host_call.hpp

/// The interface through which networks call an operation of the program; see custom().
class CustomOperation {
  public:
    virtual ~CustomOperation() = default;
    /// Returns the name for messages.
    [[nodiscard]] virtual std::string_view name() const noexcept = 0;
    /// Returns the shape of the output. Throws ArgumentError if the operation does not fit its inputs.
    [[nodiscard]] virtual Shape output_shape(InputShapes inputs) const = 0;
    /// Returns the parameters.
    [[nodiscard]] virtual std::vector<ParameterSpec> parameters(InputShapes inputs) const = 0;
    /// Computes the output.
    virtual void forward(const HostCall<float>& call) const = 0;
    /// Computes the output.
    virtual void forward(const HostCall<double>& call) const = 0;
    /// Adds to the gradients of the parameters.
    virtual void backward_parameters(const HostCall<float>& call) const = 0;
    /// Adds to the gradients of the parameters.
    virtual void backward_parameters(const HostCall<double>& call) const = 0;
    /// Adds to the gradients of the inputs.
    virtual void backward_inputs(const HostCall<float>& call) const = 0;
    /// Adds to the gradients of the inputs.
    virtual void backward_inputs(const HostCall<double>& call) const = 0;
};

/// An operation that a program defines; see custom() in custom_operation.hpp. Host backends run it through
/// its own functions.
struct Custom {
    std::shared_ptr<const CustomOperation> operation;  ///< What is computed.

    static constexpr std::string_view name = "Custom";  ///< See operation_name().
};

/// An operation of any kind.
using Operation =
    std::variant<Input, Linear, Conv2d, BatchNorm2d, ReLU, ReLU6, Sigmoid, SiLU, Softmax, RadixSum, Add,
                 Multiply, MaxPool2d, AvgPool2d, GlobalAvgPool2d, Flatten, Dropout, Custom>;

/// Returns the shape of an operation's output. Throws ArgumentError if the operation does not fit its inputs.
[[nodiscard]] Shape output_shape_of(const Operation& operation, InputShapes inputs);

/// Returns an operation's parameters.
[[nodiscard]] std::vector<ParameterSpec> parameters_of(const Operation& operation, InputShapes inputs);

/// Returns an operation's buffers.
[[nodiscard]] std::vector<BufferSpec> buffers_of(const Operation& operation, InputShapes inputs);

/// Returns the number of multiplications of a Linear's or Conv2d's forward for one sample, and 0 for others.
[[nodiscard]] std::size_t multiplications_of(const Operation& operation, InputShapes inputs);

/// Returns the name of an operation for messages: "Conv2d".
[[nodiscard]] std::string_view operation_name(const Operation& operation);

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/operations.ipp"
#endif
