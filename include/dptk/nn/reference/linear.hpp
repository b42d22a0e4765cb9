/// Linear in plain loops: y = x·Wᵀ + b, with W [out_features, in_features].
#pragma once

#include <concepts>
#include <cstddef>

#include "dptk/core/config.hpp"
#include "dptk/nn/host_call.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// Computes Σ a[i]·b[i] in eight partial sums: a single running sum has larger rounding errors, and its
/// order prevents vectorization.
template <std::floating_point T>
[[nodiscard]] T dot(const T* a, const T* b, std::size_t count) {
    constexpr std::size_t lanes = 8;
    T partial[lanes] = {};
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane) partial[lane] += a[i + lane] * b[i + lane];
    T sum = 0;
    for (; i < count; ++i) sum += a[i] * b[i];
    for (const T part : partial) sum += part;
    return sum;
}

/// Computes y[i] += factor · x[i].
template <std::floating_point T>
void add_scaled(T* y, T factor, const T* x, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

template <std::floating_point T>
void forward(const Linear& linear, const HostCall<T>& call) {
    const std::size_t in = call.shapes[0][0], out = linear.out_features;
    for (std::size_t n = 0; n < call.batch; ++n) {
        for (std::size_t o = 0; o < out; ++o) {
            const T bias = linear.bias ? call.parameters[1][o] : T{0};
            call.output[n * out + o] = bias + dot(call.inputs[0] + n * in, call.parameters[0] + o * in, in);
        }
    }
}

/// Computes dW = gᵀ·x and db = Σₙ g.
template <std::floating_point T>
void backward_parameters(const Linear& linear, const HostCall<T>& call) {
    const std::size_t in = call.shapes[0][0], out = linear.out_features;
    for (std::size_t n = 0; n < call.batch; ++n) {
        for (std::size_t o = 0; o < out; ++o) {
            const T gradient = call.output_gradient[n * out + o];
            if (linear.bias) call.parameter_gradients[1][o] += gradient;
            add_scaled(call.parameter_gradients[0] + o * in, gradient, call.inputs[0] + n * in, in);
        }
    }
}

/// Computes dx = g·W.
template <std::floating_point T>
void backward_inputs(const Linear& linear, const HostCall<T>& call) {
    const std::size_t in = call.shapes[0][0], out = linear.out_features;
    for (std::size_t n = 0; n < call.batch; ++n)
        for (std::size_t o = 0; o < out; ++o)
            add_scaled(call.input_gradients[0] + n * in, call.output_gradient[n * out + o],
                       call.parameters[0] + o * in, in);
}

}  // namespace DPTK_NAMESPACE::nn::reference
