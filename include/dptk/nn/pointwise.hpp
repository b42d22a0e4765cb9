/// Operations that apply a function to each element. One definition of the function serves all backends, on
/// the host and on GPUs.
#pragma once

#include <cmath>
#include <concepts>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::nn {

/// max(x, 0). NaN stays NaN.
struct ReLU {
    static constexpr std::string_view name = "ReLU";  ///< For messages.

    /// Returns the function's value at x.
    template <std::floating_point T>
    [[nodiscard]] DPTK_HOST_DEVICE static T value(T x) {
        return x < T{0} ? T{0} : x;
    }
    /// Returns the derivative where the value is y.
    template <std::floating_point T>
    [[nodiscard]] DPTK_HOST_DEVICE static T derivative_of_output(T y) {
        return y > T{0} ? T{1} : T{0};
    }
};

/// min(max(x, 0), 6). NaN stays NaN.
struct ReLU6 {
    static constexpr std::string_view name = "ReLU6";  ///< For messages.

    /// Returns the function's value at x.
    template <std::floating_point T>
    [[nodiscard]] DPTK_HOST_DEVICE static T value(T x) {
        return x < T{0} ? T{0} : x > T{6} ? T{6} : x;
    }
    /// Returns the derivative where the value is y.
    template <std::floating_point T>
    [[nodiscard]] DPTK_HOST_DEVICE static T derivative_of_output(T y) {
        return y > T{0} && y < T{6} ? T{1} : T{0};
    }
};

/// 1 / (1 + exp(-x)).
struct Sigmoid {
    static constexpr std::string_view name = "Sigmoid";  ///< For messages.

    /// Returns the function's value at x.
    template <std::floating_point T>
    [[nodiscard]] DPTK_HOST_DEVICE static T value(T x) {
        return T{1} / (T{1} + std::exp(-x));
    }
    /// Returns the derivative where the value is y.
    template <std::floating_point T>
    [[nodiscard]] DPTK_HOST_DEVICE static T derivative_of_output(T y) {
        return y * (T{1} - y);
    }
};

/// x · sigmoid(x), also called swish.
struct SiLU {
    static constexpr std::string_view name = "SiLU";  ///< For messages.

    /// Returns the function's value at x.
    template <std::floating_point T>
    [[nodiscard]] DPTK_HOST_DEVICE static T value(T x) {
        return x * Sigmoid::value(x);
    }
    /// Returns the derivative at x.
    template <std::floating_point T>
    [[nodiscard]] DPTK_HOST_DEVICE static T derivative(T x) {
        const T gate = Sigmoid::value(x);
        return gate * (T{1} + x * (T{1} - gate));
    }
};

/// An operation that applies a function to each element: `value(x)`, and either `derivative_of_output(y)`,
/// the derivative where the value is y, or `derivative(x)`. With the former, a network need not keep x.
template <class Op>
concept PointwiseOperation =
    requires(double x) {
        { Op::name } -> std::convertible_to<std::string_view>;
        { Op::value(x) } -> std::same_as<double>;
    } &&
    (
        requires(double x) { Op::derivative_of_output(x); } || requires(double x) { Op::derivative(x); });

namespace detail {

/// Whether the derivative is a function of the value.
template <class Op>
concept DerivativeOfOutput = requires(double y) { Op::derivative_of_output(y); };

}  // namespace detail

}  // namespace DPTK_NAMESPACE::nn
