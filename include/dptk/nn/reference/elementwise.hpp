/// Operations in plain loops whose outputs depend on few inputs: softmax, sums, products, and dropout.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/data/sample_random.hpp"
#include "dptk/nn/host_call.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// Calls visit(count, at) for each group of elements over which a softmax goes; at(i) is the index of the
/// group's element i.
template <class Visit>
void for_each_softmax(const Softmax& softmax, std::size_t batch, const Shape& shape, Visit&& visit) {
    const std::size_t count = softmax.radix == 0 ? shape[0] : softmax.radix;
    const std::size_t distance = element_count(shape) / count;
    for (std::size_t n = 0; n < batch; ++n) {
        for (std::size_t p = 0; p < distance; ++p)
            visit(count, [=](std::size_t i) { return (n * count + i) * distance + p; });
    }
}

template <std::floating_point T>
void forward(const Softmax& softmax, const HostCall<T>& call) {
    const T* const in = call.inputs[0];
    for_each_softmax(softmax, call.batch, call.shapes[0], [&](std::size_t count, auto&& at) {
        T largest = in[at(0)];
        for (std::size_t i = 1; i < count; ++i) largest = std::max(largest, in[at(i)]);
        T sum = 0;
        for (std::size_t i = 0; i < count; ++i) sum += call.output[at(i)] = std::exp(in[at(i)] - largest);
        for (std::size_t i = 0; i < count; ++i) call.output[at(i)] /= sum;
    });
}

template <std::floating_point T>
void backward_inputs(const Softmax& softmax, const HostCall<T>& call) {
    for_each_softmax(softmax, call.batch, call.shapes[0], [&](std::size_t count, auto&& at) {
        T mean = 0;
        for (std::size_t i = 0; i < count; ++i) mean += call.output[at(i)] * call.output_gradient[at(i)];
        for (std::size_t i = 0; i < count; ++i)
            call.input_gradients[0][at(i)] += call.output[at(i)] * (call.output_gradient[at(i)] - mean);
    });
}

/// Calls visit(input, output) for each pair of indices that a RadixSum connects, in the order of the inputs.
template <std::floating_point T, class Visit>
void for_each_term(const RadixSum& sum, const HostCall<T>& call, Visit&& visit) {
    const std::size_t count = element_count(call.output_shape);
    for (std::size_t n = 0, i = 0; n < call.batch; ++n)
        for (std::size_t group = 0; group < sum.radix; ++group)
            for (std::size_t e = 0; e < count; ++e, ++i) visit(i, n * count + e);
}

template <std::floating_point T>
void forward(const RadixSum& sum, const HostCall<T>& call) {
    std::fill(call.output.begin(), call.output.end(), T{0});
    for_each_term(sum, call,
                  [&](std::size_t in, std::size_t out) { call.output[out] += call.inputs[0][in]; });
}

template <std::floating_point T>
void backward_inputs(const RadixSum& sum, const HostCall<T>& call) {
    for_each_term(sum, call, [&](std::size_t in, std::size_t out) {
        call.input_gradients[0][in] += call.output_gradient[out];
    });
}

template <std::floating_point T>
void forward(const Add&, const HostCall<T>& call) {
    for (std::size_t i = 0; i < call.output.size(); ++i)
        call.output[i] = call.inputs[0][i] + call.inputs[1][i];
}

/// Returns, for each element of a sample of the first input, the index in a sample of the second one.
[[nodiscard]] inline std::vector<std::size_t> broadcast_indices(const Shape& first, const Shape& second) {
    std::vector<std::size_t> indices(element_count(first));
    for (std::size_t i = 0; i < indices.size(); ++i) {
        std::size_t rest = i, step = 1;
        for (std::size_t d = first.size(); d-- > 0;) {
            const std::size_t place = rest % first[d];
            rest /= first[d];
            if (second[d] != 1) indices[i] += place * step;
            step *= second[d];
        }
    }
    return indices;
}

/// Calls visit(i, j) for each element i of the first input, and the element j of the second one by which it
/// is multiplied.
template <std::floating_point T, class Visit>
void for_each_product(const HostCall<T>& call, Visit&& visit) {
    const std::vector<std::size_t> other = broadcast_indices(call.shapes[0], call.shapes[1]);
    const std::size_t factors = element_count(call.shapes[1]);
    for (std::size_t i = 0; i < call.output.size(); ++i)
        visit(i, i / other.size() * factors + other[i % other.size()]);
}

template <std::floating_point T>
void forward(const Multiply&, const HostCall<T>& call) {
    for_each_product(
        call, [&](std::size_t i, std::size_t j) { call.output[i] = call.inputs[0][i] * call.inputs[1][j]; });
}

template <std::floating_point T>
void backward_inputs(const Multiply&, const HostCall<T>& call) {
    for_each_product(call, [&](std::size_t i, std::size_t j) {
        call.input_gradients[0][i] += call.output_gradient[i] * call.inputs[1][j];
        call.input_gradients[1][j] += call.output_gradient[i] * call.inputs[0][i];
    });
}

/// Returns the factor of each element in a dropout: 0, or 1 / (1 - p). It depends on the seed, the step, the
/// operation and the element's place in the batch alone.
template <std::floating_point T>
[[nodiscard]] T dropout_factor(const Dropout& dropout, const HostCall<T>& call, std::size_t element) {
    if (call.pass.mode == Mode::evaluate) return 1;
    SampleRandom random(call.pass.seed + call.node, call.pass.step, element);
    return random.unit() < dropout.p ? T{0} : static_cast<T>(1 / (1 - dropout.p));
}

template <std::floating_point T>
void forward(const Dropout& dropout, const HostCall<T>& call) {
    for (std::size_t i = 0; i < call.output.size(); ++i)
        call.output[i] = call.inputs[0][i] * dropout_factor(dropout, call, i);
}

template <std::floating_point T>
void backward_inputs(const Dropout& dropout, const HostCall<T>& call) {
    for (std::size_t i = 0; i < call.output.size(); ++i)
        call.input_gradients[0][i] += call.output_gradient[i] * dropout_factor(dropout, call, i);
}

}  // namespace DPTK_NAMESPACE::nn::reference
