/// Compares a network on oneDNN with the same network on the f64 reference backend.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "dptk/nn/cpu/backend.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/nn/reference/backend.hpp"
#include "support.hpp"

namespace DPTK_NAMESPACE::nn::testing {

/// The tolerance is single precision: oneDNN sums in another order than the reference, which computes in
/// double.
inline constexpr double cpu_tolerance = 2e-5;

/// Returns which physical elements of each parameter are padding.
inline std::vector<std::vector<bool>> padding_of(Network<Cpu>& net) {
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < net.parameter_count(); ++i) {
        values.push_back(net.parameter_values(i));
        net.set_parameter_values(i, std::vector<float>(values[i].size(), 1));
    }
    std::vector<std::vector<bool>> padding;
    net.for_each_parameter([&](const ParameterRef& parameter) {
        const std::span elements(static_cast<const float*>(parameter.value), parameter.count);
        std::vector<bool>& flags = padding.emplace_back();
        for (const float element : elements) flags.push_back(element == 0);
    });
    for (std::size_t i = 0; i < values.size(); ++i) net.set_parameter_values(i, values[i]);
    return padding;
}

inline bool padding_is_zero(const std::vector<bool>& padding, const void* elements) {
    const auto* data = static_cast<const float*>(elements);
    for (std::size_t i = 0; i < padding.size(); ++i)
        if (padding[i] && data[i] != 0) return false;
    return true;
}

/// Runs batches of several sizes through one network object on each backend, and compares outputs and
/// gradients of parameters and inputs. The padding of parameters and gradients must always be zero.
inline void check_against_reference(Cpu backend, const Graph& graph, double tolerance,
                                    const std::vector<std::size_t>& batches = {8, 3, 33, 3, 8, 1},
                                    Mode mode = Mode::train, const std::vector<std::size_t>& frozen = {}) {
    Network<Cpu> net(graph, 5, std::move(backend));
    Network<Reference<double>> oracle(graph, 5);
    net.set_frozen(frozen);
    oracle.set_frozen(frozen);
    net.set_mode(mode);
    oracle.set_mode(mode);
    const Shape& input_shape = graph.input_shape();
    const std::vector<std::vector<bool>> padding = padding_of(net);
    std::vector<std::vector<float>> storage;
    net.for_each_parameter([&](const ParameterRef& parameter) {
        storage.emplace_back(parameter.count, std::numeric_limits<float>::quiet_NaN());
    });
    for (std::size_t i = 0; i < storage.size(); ++i) net.set_gradient_storage(i, storage[i]);

    std::uint32_t stream = 50;
    for (const std::size_t n : batches) {
        CAPTURE(n);
        ++stream;
        const Tensor<float> input = pattern_tensor<float>(stream, with_batch(n, input_shape), 8);
        const Tensor<double> oracle_input = pattern_tensor<double>(stream, with_batch(n, input_shape), 8);
        const Tensor<float>& output = net.forward(input);
        CHECK(difference(output.values(), oracle.forward(oracle_input).values()) < tolerance);

        const Tensor<float> gradient = pattern_tensor<float>(stream + 100, output.shape());
        std::vector<std::size_t> order;
        net.backward(
            gradient, [&](std::size_t i) { order.push_back(i); }, InputGradient::compute);
        oracle.backward(pattern_tensor<double>(stream + 100, output.shape()), InputGradient::compute);
        CHECK(difference(net.input_gradient().values(), oracle.input_gradient().values()) < tolerance);
        for (std::size_t i = 0; i < net.parameter_count(); ++i) {
            if (net.is_frozen(i)) continue;
            CAPTURE(i);
            CHECK(difference(net.parameter_gradient(i), oracle.parameter_gradient(i)) < tolerance);
            CHECK(padding_is_zero(padding[i], storage[i].data()));
            CHECK(std::ranges::count(order, i) == 1);
        }
        CHECK(std::ranges::is_sorted(order, std::ranges::greater()));
        CHECK(order.size() == net.parameter_count() - frozen.size());
        CHECK(difference(input.values(), oracle_input.values()) == 0);  // the user's memory is only read
        CHECK(difference(gradient.values(), pattern_tensor<float>(stream + 100, output.shape()).values()) ==
              0);
    }
    std::size_t i = 0;
    net.for_each_parameter([&](const ParameterRef& parameter) {
        CHECK(padding_is_zero(padding[i], parameter.value));
        CHECK(difference(net.parameter_values(i), oracle.parameter_values(i)) < 1e-7);
        ++i;
    });
}

/// The same, in f32.
inline void check_against_reference(const Graph& graph, double tolerance = cpu_tolerance,
                                    const std::vector<std::size_t>& batches = {8, 3, 33, 3, 8, 1},
                                    Mode mode = Mode::train, const std::vector<std::size_t>& frozen = {}) {
    check_against_reference(Cpu(), graph, tolerance, batches, mode, frozen);
}

/// The same, for consecutive operations.
inline void check_against_reference(const std::vector<Operation>& operations, const Shape& input_shape,
                                    double tolerance = cpu_tolerance) {
    check_against_reference(sequential(input_shape, operations), tolerance);
}

}  // namespace DPTK_NAMESPACE::nn::testing
