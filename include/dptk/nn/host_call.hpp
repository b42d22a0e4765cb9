/// HostCall, what the functions of an operation read and write on the host: the operations in nn/reference,
/// and those that a program defines.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/operations.hpp"

namespace DPTK_NAMESPACE::nn {

/// How batch norms and dropout behave.
enum class Mode {
    train,    ///< Batch norms use the statistics of the batch, and dropout drops elements.
    evaluate  ///< Batch norms use the running statistics, and dropout does nothing.
};

/// A forward pass of a network, and the backward passes for it.
struct Pass {
    Mode mode = Mode::train;  ///< How batch norms and dropout behave.
    std::uint64_t seed = 0;   ///< The network's seed.
    std::int64_t step = 0;    ///< The number of forward passes in training before this one.
    /// Sums the numbers over all ranks, for batch norms that are synchronized. Empty for a single rank.
    std::function<void(std::span<double>)> sum_over_ranks = {};
    /// Whether the gradients that ranks compute are averaged by their numbers of samples.
    bool weighs_by_samples = false;
};

/// The running statistics of a batch norm.
template <std::floating_point T>
struct RunningStatistics {
    std::vector<T> mean;           ///< Of each channel.
    std::vector<T> variance;       ///< Of each channel.
    std::int64_t batch_count = 0;  ///< The number of batches that they have seen.
};

/// What an operation keeps from forward to backward, besides inputs and output.
template <std::floating_point T>
struct SavedValues {
    std::vector<T> values;             ///< Numbers of the operation's choice.
    std::vector<std::size_t> indices;  ///< Indices of the operation's choice.
    std::vector<double> sums;          ///< For a batch norm: see backward_parameters() in nn/reference.
    std::vector<double> variances;     ///< For a batch norm: workspace.
    double count = 0;                  ///< For a batch norm: the elements of a channel, over all ranks.
};

/// The arguments of an operation's functions for a batch. All arrays are row-major. Backward functions are
/// called for the batch of the last forward.
template <std::floating_point T>
struct HostCall {
    std::size_t batch = 0;                           ///< The number of samples.
    InputShapes shapes = {};                         ///< Of the inputs, without the batch dimension.
    std::span<const std::size_t> output_shape = {};  ///< Of the output, without the batch dimension.
    std::span<const T* const> inputs = {};           ///< The inputs.
    std::span<T> output = {};                        ///< Written by forward, read by backward.
    std::span<const T> output_gradient = {};         ///< Read by backward.
    std::span<T* const> input_gradients = {};        ///< backward_inputs() adds to these.
    std::span<const T* const> parameters = {};       ///< In the order of the operation's parameters().
    std::span<T* const> parameter_gradients = {};    ///< backward_parameters() adds to these.
    const Pass& pass;                                ///< The mode, and what random numbers depend on.
    std::size_t node = 0;                            ///< The operation's index in the graph.
    SavedValues<T>& saved;                           ///< Written by forward, read by backward.
    RunningStatistics<T>* statistics = nullptr;      ///< Those of a batch norm.
};

namespace detail {

/// The forward of a PointwiseOperation.
template <class Op, std::floating_point T>
void pointwise_forward(const HostCall<T>& call) {
    const T* const in = call.inputs[0];
    for (std::size_t i = 0; i < call.output.size(); ++i) call.output[i] = Op::value(in[i]);
}

/// The backward of a PointwiseOperation.
template <class Op, std::floating_point T>
void pointwise_backward(const HostCall<T>& call) {
    T* const gradient = call.input_gradients[0];
    for (std::size_t i = 0; i < call.output.size(); ++i) {
        if constexpr (DerivativeOfOutput<Op>) {
            gradient[i] += call.output_gradient[i] * Op::derivative_of_output(call.output[i]);
        } else {
            gradient[i] += call.output_gradient[i] * Op::derivative(call.inputs[0][i]);
        }
    }
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE::nn
