/// ReduceOp says how a reduction combines the ranks' elements.
#pragma once

#include <cstdint>
#include <string_view>

#include "dptk/core/dtype.hpp"

namespace dptk {

/// `avg` is the sum divided by the number of ranks, for floating-point types. `band`, `bor` and `bxor` work
/// bitwise on integers and logically on bool.
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

/// Throws ArgumentError where `op` has no meaning for `dtype`.
inline void check_reduction(DType dtype, ReduceOp op) {
    const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
    const bool arithmetic = op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::product;
    const bool meaningful = is_floating(dtype)        ? !bitwise
                            : dtype == DType::boolean ? !arithmetic
                                                      : op != ReduceOp::avg;
    if (!meaningful) {
        throw ArgumentError(
            detail::text("ReduceOp::", reduce_op_name(op), " has no meaning for ", dtype_name(dtype)));
    }
}

}  // namespace dptk
