/// Parameter initialization: PyTorch's default distribution for linear and convolutional layers. The same
/// seed gives the same values with every backend, compiler and standard library.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/operations.hpp"

namespace DPTK_NAMESPACE::nn {

/// The random generator of initial values. The C++ standard specifies its output exactly, unlike that of
/// the standard distributions.
using Generator = std::mt19937_64;

/// Returns a uniform number in [-1, 1) from 53 random bits. Every operation is exact, so that all compilers
/// give the same result.
[[nodiscard]] inline double uniform_symmetric(Generator& generator) {
    constexpr auto half = std::int64_t{1} << 52;
    const auto bits = static_cast<std::int64_t>(generator() >> 11);
    return static_cast<double>(bits - half) / static_cast<double>(half);
}

/// Returns `count` values from U(-1/√fan_in, 1/√fan_in), in row-major order. PyTorch uses this distribution
/// for the weights (Kaiming uniform with a = √5) and for the biases of Linear and Conv2d.
/// `fan_in` is the number of inputs of one output: in_features, or channels · kernel_size².
template <std::floating_point T>
[[nodiscard]] std::vector<T> initial_values(std::size_t count, std::size_t fan_in, Generator& generator) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(bound * uniform_symmetric(generator));
    return values;
}

namespace detail {

/// Returns the first values of a parameter, row-major.
template <std::floating_point T>
[[nodiscard]] std::vector<T> first_values(const ParameterSpec& spec, Generator& generator) {
    const std::size_t count = element_count(spec.shape);
    if (spec.initial == Initial::uniform) return initial_values<T>(count, spec.fan_in, generator);
    return std::vector<T>(count, spec.initial == Initial::ones ? T{1} : T{0});
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE::nn
