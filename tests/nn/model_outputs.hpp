/// The comparison of a model with what record_model_outputs.py has recorded of PyTorch.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dptk/nn/models.hpp"
#include "dptk/nn/network.hpp"
#include "support.hpp"

namespace DPTK_NAMESPACE::nn::testing {

/// Sets the parameters as record_model_outputs.py does.
template <class Backend>
void set_model_parameters(Network<Backend>& net) {
    using T = typename Backend::Scalar;
    const std::vector<ParameterSpec> specs = net.graph().parameters();
    for (std::size_t i = 0; i < specs.size(); ++i) {
        auto values =
            pattern_values<double>(static_cast<std::uint32_t>(i + 1), element_count(specs[i].shape));
        std::vector<T> rounded;
        for (const double value : values) {
            const double scaled = specs[i].initial == Initial::ones ? 0.3 + value / 2
                                  : specs[i].initial == Initial::zeros
                                      ? 0.5 + value / 4
                                      : value * 8 / std::sqrt(static_cast<double>(specs[i].fan_in));
            rounded.push_back(static_cast<T>(static_cast<float>(scaled)));
        }
        net.set_parameter_values(i, rounded);
    }
}

/// Returns the sum, the norm, and a projection that detects elements in the wrong place.
template <class T>
std::vector<double> summary(const std::vector<T>& values) {
    double sum = 0, squares = 0, projection = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double value = static_cast<double>(values[i]);
        sum += value;
        squares += value * value;
        projection += value * pattern<double>(300, i);
    }
    return {sum, std::sqrt(squares), projection};
}

/// Compares outputs within 1e-4 and running statistics within 1e-5, relative to their norms, and norms and
/// projections of gradients: in double precision within the digits that are recorded, in single precision
/// within 16 times their sensitivity, which holds for each order of sums.
template <class Backend>
void check_model(const std::string& model, std::size_t size) {
    using T = typename Backend::Scalar;
    CAPTURE(model);
    CAPTURE(size);
    static const RecordedOutputs recorded("torch_model_outputs.txt");
    const std::string name = model + '.' + std::to_string(size) + '/';
    const std::size_t batch = size == 64 || model == "resnest50" ? 4 : 1;
    Network<Backend> net(make_model(model, {.input = {3, size, size}, .dropout = 0}), 1);
    set_model_parameters(net);
    const Tensor<T> input = pattern_tensor<T>(100, {batch, 3, size, size}, 4);
    const auto check = [&](const std::string& key, const std::vector<T>& values, double tolerance) {
        CAPTURE(key);
        const std::vector<double>& expected = recorded.at(name + key);
        const std::vector<double> found = summary(values);
        for (std::size_t i = 0; i < found.size(); ++i)
            CHECK(std::abs(found[i] - expected[i]) < tolerance * expected[1] * (i == 0 ? 10 : 1));
        for (std::size_t i = found.size(); i < expected.size(); ++i)
            CHECK(std::abs(static_cast<double>(values[i - found.size()]) - expected[i]) <
                  tolerance * expected[1]);
    };
    for (const Mode mode : {Mode::evaluate, Mode::train}) {
        net.set_mode(mode);
        const auto values = net.forward(input).values();
        check(mode == Mode::train ? "trained" : "evaluated", {values.begin(), values.end()}, 1e-4);
    }
    net.backward(pattern_tensor<T>(200, {batch, 1000}, 0.25));
    std::vector<T> statistics;
    net.for_each_buffer([&](const NamedBuffer& buffer) {
        if (buffer.data.dtype == DType::i64) return;
        const auto* const values = static_cast<const T*>(buffer.data.data);
        statistics.insert(statistics.end(), values, values + buffer.data.count);
    });
    check("statistics", statistics, 1e-5);
    const std::vector<double>& gradients = recorded.at(name + "gradients");
    const std::vector<double>& sensitivity = recorded.at(name + "sensitivity");
    REQUIRE(gradients.size() == 2 * net.parameter_count());
    REQUIRE(sensitivity.size() == net.parameter_count());
    constexpr bool rounds = std::same_as<T, float>;
    double all = 0;
    for (std::size_t i = 0; i < gradients.size(); i += 2) all = std::max(all, gradients[i]);
    for (std::size_t i = 0; i < net.parameter_count(); ++i) {
        CAPTURE(i);
        const std::vector<double> found = summary(net.parameter_gradient(i));
        // Sums that cancel out, such as those of biases before batch norms, leave rounding errors of the
        // terms.
        const double tolerance =
            rounds ? 16 * sensitivity[i] + 5e-6 * all : 1e-6 * std::max(gradients[2 * i], 1e-3 * all);
        CHECK(std::abs(found[1] - gradients[2 * i]) < tolerance);
        CHECK(std::abs(found[2] - gradients[2 * i + 1]) < tolerance);
    }
}

}  // namespace DPTK_NAMESPACE::nn::testing
