/// In which arithmetic a network computes on a GPU.
#pragma once

#include <cstdint>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE::nn {

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
[[nodiscard]] std::string_view precision_name(Precision precision) noexcept;

/// Of activations.
[[nodiscard]] DType activation_type(Precision precision) noexcept;

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/precision.ipp"
#endif
