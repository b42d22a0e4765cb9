/// BatchNorm2d in plain loops, over the batch of one rank or of all ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/host_call.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// Calls visit(channel, index) for each element of a batch of images.
template <class Visit>
void for_each_element(std::size_t batch, const Shape& shape, Visit&& visit) {
    const std::size_t plane = shape[1] * shape[2];
    for (std::size_t n = 0, i = 0; n < batch; ++n) {
        for (std::size_t c = 0; c < shape[0]; ++c) {
            for (std::size_t p = 0; p < plane; ++p, ++i) visit(c, i);
        }
    }
}

/// Moves the running statistics towards the mean and the biased variance of a batch with `count` elements in
/// each channel.
template <std::floating_point T, class Mean, class Variance>
void update_statistics(const BatchNorm2d& norm, RunningStatistics<T>& statistics, const Mean& mean,
                       const Variance& variance, double count) {
    const auto move = [&](T& running, double value) {
        running = static_cast<T>((1 - norm.momentum) * static_cast<double>(running) + norm.momentum * value);
    };
    for (std::size_t c = 0; c < statistics.mean.size(); ++c) {
        move(statistics.mean[c], static_cast<double>(mean[c]));
        move(statistics.variance[c], static_cast<double>(variance[c]) * count / std::max(count - 1, 1.0));
    }
    ++statistics.batch_count;
}

/// Saves the factors 1 / √(variance + eps) and then the means of all channels, and the sums that
/// backward_parameters() adds to them.
template <std::floating_point T>
void forward(const BatchNorm2d& norm, const HostCall<T>& call) {
    const Shape& shape = call.shapes[0];
    const std::size_t channels = shape[0];
    call.saved.values.resize(2 * channels);
    T* const factors = call.saved.values.data();
    T* const means = factors + channels;
    const T* const input = call.inputs[0];
    std::vector<double>& mean = call.saved.sums;
    std::vector<double>& variance = call.saved.variances;
    mean.assign(channels, 0);
    variance.assign(channels, 0);
    if (call.pass.mode == Mode::train) {
        const bool is_shared = norm.is_synchronized && call.pass.sum_over_ranks;
        mean.push_back(static_cast<double>(call.batch * shape[1] * shape[2]));  // the count, behind the sums
        for_each_element(call.batch, shape,
                         [&](std::size_t c, std::size_t i) { mean[c] += static_cast<double>(input[i]); });
        if (is_shared) call.pass.sum_over_ranks(mean);
        const double count = call.saved.count = std::max(mean.back(), 1.0);
        for (double& value : mean) value /= count;
        for_each_element(call.batch, shape, [&](std::size_t c, std::size_t i) {
            const double difference = static_cast<double>(input[i]) - mean[c];
            variance[c] += difference * difference;
        });
        if (is_shared) call.pass.sum_over_ranks(variance);
        for (double& value : variance) value /= count;
        if (mean.back() > 0) update_statistics(norm, *call.statistics, mean, variance, count);
    } else {
        std::copy_n(call.statistics->mean.begin(), channels, mean.begin());
        std::copy_n(call.statistics->variance.begin(), channels, variance.begin());
    }
    for (std::size_t c = 0; c < channels; ++c) {
        factors[c] = static_cast<T>(1 / std::sqrt(variance[c] + norm.eps));
        means[c] = static_cast<T>(mean[c]);
    }
    for_each_element(call.batch, shape, [&](std::size_t c, std::size_t i) {
        call.output[i] = (input[i] - means[c]) * factors[c] * call.parameters[0][c] + call.parameters[1][c];
    });
}

/// Also saves, for each channel, the sum of the output gradient, and then for each channel the sum of its
/// products with the normalized input, for backward_inputs().
template <std::floating_point T>
void backward_parameters(const BatchNorm2d&, const HostCall<T>& call) {
    const std::size_t channels = call.shapes[0][0];
    const T* const factors = call.saved.values.data();
    const T* const means = factors + channels;
    std::vector<double>& sums = call.saved.sums;
    sums.assign(2 * channels, 0);
    for_each_element(call.batch, call.shapes[0], [&](std::size_t c, std::size_t i) {
        const double gradient = static_cast<double>(call.output_gradient[i]);
        sums[c] += gradient;
        sums[channels + c] += gradient * static_cast<double>((call.inputs[0][i] - means[c]) * factors[c]);
    });
    for (std::size_t c = 0; c < channels; ++c) {
        call.parameter_gradients[0][c] += static_cast<T>(sums[channels + c]);
        call.parameter_gradients[1][c] += static_cast<T>(sums[c]);
    }
}

template <std::floating_point T>
void backward_inputs(const BatchNorm2d& norm, const HostCall<T>& call) {
    const std::size_t channels = call.shapes[0][0];
    const T* const factors = call.saved.values.data();
    const T* const means = factors + channels;
    std::vector<double>& sums = call.saved.sums;
    if (call.batch == 0) sums.assign(2 * channels, 0);
    const bool trains = call.pass.mode == Mode::train;  // in evaluation, mean and variance are constants
    if (trains && norm.is_synchronized && call.pass.sum_over_ranks) {
        // The loss of all ranks has each rank's loss times its samples. What this rank computes is
        // multiplied by its samples later.
        const double weight = call.pass.weighs_by_samples ? static_cast<double>(call.batch) : 1;
        for (double& value : sums) value *= weight;
        call.pass.sum_over_ranks(sums);
        if (weight > 0)
            for (double& value : sums) value /= weight;
    }
    const double rest = trains ? 1 / call.saved.count : 0;
    for_each_element(call.batch, call.shapes[0], [&](std::size_t c, std::size_t i) {
        const double normalized = static_cast<double>((call.inputs[0][i] - means[c]) * factors[c]);
        const double centered =
            static_cast<double>(call.output_gradient[i]) - rest * (sums[c] + normalized * sums[channels + c]);
        call.input_gradients[0][i] += static_cast<T>(centered) * factors[c] * call.parameters[0][c];
    });
}

}  // namespace DPTK_NAMESPACE::nn::reference
