/// Initial parameter values, PyTorch's default for linear and convolutional layers. The same seed gives the
/// same values with every backend, compiler and standard library.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <random>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::nn {

/// What initial values are drawn from. The standard fixes its output, unlike that of its distributions.
using Generator = std::mt19937_64;

/// Uniform in [-1, 1), from 53 random bits. Every step is exact, so no compiler can round it differently.
[[nodiscard]] double uniform_symmetric(Generator& generator);

/// `count` values from U(-1/√fan_in, 1/√fan_in), in row-major order. This is Kaiming uniform with a = √5,
/// which PyTorch uses for the weights of Linear and Conv2d, and also what it uses for their biases. \param
/// fan_in the inputs of one output: in_features, or channels · kernel_size²
template <std::floating_point T>
[[nodiscard]] std::vector<T> initial_values(std::size_t count, std::size_t fan_in, Generator& generator) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(bound * uniform_symmetric(generator));
    return values;
}

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/initialise.ipp"
#endif
