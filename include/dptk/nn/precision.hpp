/// The precision of a network's arithmetic: fp32, tf32 or bf16.
#pragma once

#include <cstdint>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE::nn {

/// Parameters, their gradients, inputs, outputs and losses are f32 in each precision.
enum class Precision : std::uint8_t {
    /// f32 throughout.
    fp32,
    /// f32 in memory; matrix products and convolutions round their operands to 10 bits of fraction. The same
    /// as fp32 on a CPU.
    tf32,
    /// On a GPU, bf16 activations, and a bf16 copy of the parameters. On a CPU, bf16 copies of the operands
    /// of
    /// matrix products and convolutions. Sums are f32 on both.
    bf16,
};

/// Returns the name of a precision, such as "fp32".
[[nodiscard]] std::string_view precision_name(Precision precision) noexcept;

/// Returns the type of activations on a GPU.
[[nodiscard]] DType activation_type(Precision precision) noexcept;

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/precision.ipp"
#endif
