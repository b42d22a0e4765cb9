/// In which arithmetic a network computes on a GPU.
#pragma once

#include <cstdint>
#include <string_view>

#include "dptk/core/dtype.hpp"

namespace dptk::nn {

/// Parameters, their gradients, inputs, outputs and losses are f32 in all of them.
enum class Precision : std::uint8_t {
    /// f32 throughout.
    fp32,
    /// f32 in memory; matrix products and convolutions round what they multiply to 10 bits of fraction.
    tf32,
    /// Activations in bf16, and a copy of the parameters; sums in f32.
    bf16,
};

/// "fp32" and so on.
[[nodiscard]] inline std::string_view precision_name(Precision precision) noexcept {
    switch (precision) {
        case Precision::fp32: return "fp32";
        case Precision::tf32: return "tf32";
        case Precision::bf16: break;
    }
    return "bf16";
}

/// Of activations.
[[nodiscard]] inline DType activation_type(Precision precision) noexcept {
    return precision == Precision::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace dptk::nn
