/// ReduceOp, the built-in reduction operations, and Reduction: a ReduceOp, a weighted sum, or a user
/// function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE {

/// A built-in reduction operation. `avg` is the sum divided by the number of ranks, for floating-point and
/// complex types. `band`, `bor` and `bxor` are bitwise on integers and logical on bool.
enum class ReduceOp : std::uint8_t { sum, avg, product, min, max, band, bor, bxor };

/// Returns the name of an operation for error texts: "sum".
[[nodiscard]] constexpr std::string_view reduce_op_name(ReduceOp op) noexcept {
    switch (op) {
        case ReduceOp::sum: return "sum";
        case ReduceOp::avg: return "avg";
        case ReduceOp::product: return "product";
        case ReduceOp::min: return "min";
        case ReduceOp::max: return "max";
        case ReduceOp::band: return "band";
        case ReduceOp::bor: return "bor";
        case ReduceOp::bxor: return "bxor";
    }
    return "no operation";
}

/// A type-erased user function: into[i] = f(into[i], from[i]). `into` holds the elements of lower ranks.
struct UserFunction {
    /// Combines `count` elements.
    std::function<void(void* into, const void* from, std::size_t count)> combine;
};

/// The sum of weight * element over the ranks; each rank has its own weight. For floating-point and complex
/// types.
struct WeightedSum {
    double weight = 1;  ///< This rank's weight.
};

/// The operation of a call that reduces. Does not own a user function, which must live as long as the call.
struct Reduction {
    /// Creates a built-in operation.
    Reduction(ReduceOp op_ = ReduceOp::sum) : op(op_) {}  // NOLINT(google-explicit-constructor): a widening
    /// Creates a weighted sum with this rank's weight.
    explicit Reduction(WeightedSum sum) : weight(sum.weight) {}
    /// Creates an operation that refers to a user function.
    explicit Reduction(const UserFunction& user_) : user(&user_) {}

    /// Returns whether the sum is divided by the number of ranks.
    [[nodiscard]] bool averages() const noexcept { return user == nullptr && op == ReduceOp::avg; }

    /// Returns the name of the operation for error texts.
    [[nodiscard]] std::string_view name() const noexcept {
        return user != nullptr ? "user's function" : reduce_op_name(op);
    }

    ReduceOp op = ReduceOp::sum;         ///< The built-in operation; unused if `user` is set.
    const UserFunction* user = nullptr;  ///< The user function; null for built-in operations.
    /// The factor by which this rank's elements are multiplied before they are summed.
    std::optional<double> weight = std::nullopt;
};

/// Returns whether `op` is defined for `dtype`.
[[nodiscard]] constexpr bool is_meaningful(DType dtype, ReduceOp op) noexcept {
    const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
    const bool extreme = op == ReduceOp::min || op == ReduceOp::max;
    if (dtype == DType::opaque) return false;
    if (dtype == DType::boolean) return bitwise || extreme;
    if (is_complex(dtype)) return !bitwise && !extreme;
    if (is_floating(dtype)) return !bitwise;
    return op != ReduceOp::avg;
}

namespace detail {

/// The ReduceOp that a function object of the standard library computes, such as std::plus<>.
template <class F>
inline constexpr std::optional<ReduceOp> op_of_function = std::nullopt;
template <class T>
inline constexpr std::optional<ReduceOp> op_of_function<std::plus<T>> = ReduceOp::sum;
template <class T>
inline constexpr std::optional<ReduceOp> op_of_function<std::multiplies<T>> = ReduceOp::product;
template <class T>
inline constexpr std::optional<ReduceOp> op_of_function<std::bit_and<T>> = ReduceOp::band;
template <class T>
inline constexpr std::optional<ReduceOp> op_of_function<std::bit_or<T>> = ReduceOp::bor;
template <class T>
inline constexpr std::optional<ReduceOp> op_of_function<std::bit_xor<T>> = ReduceOp::bxor;

/// Whether dptk computes the function by its own code: on numbers of type T, in which F computes, too.
template <class F, class T>
inline constexpr bool is_known_function = false;
template <template <class> class F, class Argument, class T>
inline constexpr bool is_known_function<F<Argument>, T> =
    op_of_function<F<Argument>> &&
    (std::is_void_v<Argument> || std::is_same_v<Argument, T>)&&dtype_of<T> != DType::boolean &&
    is_meaningful(dtype_of<T>, *op_of_function<F<Argument>>);

[[nodiscard]] constexpr bool has_weights(DType dtype) noexcept {
    return is_floating(dtype) || is_complex(dtype);
}

[[noreturn]] void refuse_reduction(DType dtype, const Reduction& reduction);

}  // namespace detail

/// Throws ArgumentError if the operation is not defined for `dtype`.
inline void check_reduction(DType dtype, const Reduction& reduction) {
    const bool is_weight_valid = !reduction.weight || detail::has_weights(dtype);
    const bool is_defined = reduction.user != nullptr || is_meaningful(dtype, reduction.op);
    if (!is_weight_valid || !is_defined) detail::refuse_reduction(dtype, reduction);
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/reduce_op.ipp"
#endif
