/// ReduceOp says how a reduction combines the ranks' elements; Reduction is one of these, or a function of
/// the user's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE {

/// `avg` is the sum divided by the number of ranks, for floating-point and complex types. `band`, `bor` and
/// `bxor` work bitwise on integers and logically on bool.
enum class ReduceOp : std::uint8_t { sum, avg, product, min, max, band, bor, bxor };

/// The name of an operation as messages show it: "sum".
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

/// A function of the user's, erased: into[i] = f(into[i], from[i]), where `into` comes from lower ranks.
struct UserFunction {
    std::function<void(void* into, const void* from, std::size_t count)> combine;  ///< Of `count` elements.
};

/// The sum of weight * element, where each rank has a weight of its own; for floating-point and complex
/// types.
struct WeightedSum {
    double weight = 1;  ///< This rank's.
};

/// What a reducing verb is given. Points to a user's function, which lives as long as the operation.
struct Reduction {
    /// One of dptk's own operations.
    Reduction(ReduceOp op_ = ReduceOp::sum) : op(op_) {}  // NOLINT(google-explicit-constructor): a widening
    /// A sum, with this rank's weight.
    explicit Reduction(WeightedSum sum) : weight(sum.weight) {}
    /// A function, which is kept by its address.
    explicit Reduction(const UserFunction& user_) : user(&user_) {}

    /// Whether the sum is divided by the number of ranks.
    [[nodiscard]] bool averages() const noexcept { return user == nullptr && op == ReduceOp::avg; }

    /// Its name for messages.
    [[nodiscard]] std::string_view name() const noexcept {
        return user != nullptr ? "user's function" : reduce_op_name(op);
    }

    ReduceOp op = ReduceOp::sum;         ///< Where `user` is null.
    const UserFunction* user = nullptr;  ///< Null for one of dptk's own operations.
    /// Of this rank's elements, before they are summed.
    std::optional<double> weight = std::nullopt;
};

/// Whether `op` has a meaning for `dtype`.
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

[[nodiscard]] constexpr bool has_weights(DType dtype) noexcept {
    return is_floating(dtype) || is_complex(dtype);
}

[[noreturn]] void refuse_reduction(DType dtype, const Reduction& reduction);

}  // namespace detail

/// Throws ArgumentError where the operation has no meaning for `dtype`.
inline void check_reduction(DType dtype, const Reduction& reduction) {
    const bool is_weighted_well = !reduction.weight || detail::has_weights(dtype);
    const bool is_known = reduction.user != nullptr || is_meaningful(dtype, reduction.op);
    if (!is_weighted_well || !is_known) detail::refuse_reduction(dtype, reduction);
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/reduce_op.ipp"
#endif
