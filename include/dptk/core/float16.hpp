/// The 16-bit floating-point storage types float16 (IEEE 754 binary16, fp16) and bfloat16 (bf16, the upper
/// half of a float). They convert from and to float and have no arithmetic of their own: dptk computes in
/// float and rounds once. For other libraries' types with the same bits, specialize DTypeTraits.
#pragma once

#include <bit>
#include <cstdint>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Rounds to the nearest binary16: ties to even, overflow to infinity, NaN to a quiet NaN.
[[nodiscard]] constexpr std::uint16_t float_to_float16_bits(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7fff'ffffU;
    if (magnitude > 0x7f80'0000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
    if (magnitude >= 0x4780'0000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 65536 and above
    std::uint32_t rounded = 0;
    if (magnitude < 0x3880'0000U) {
        // Below the smallest normal, 2^-14: the float addition shifts and rounds the bits into place.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        rounded = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
    } else {
        const std::uint32_t odd = (magnitude >> 13) & 1U;
        rounded = (magnitude - 0x3800'0000U + 0xfffU + odd) >> 13;  // may round up to infinity
    }
    return static_cast<std::uint16_t>(sign | rounded);
}

[[nodiscard]] constexpr float float16_bits_to_float(std::uint16_t bits) noexcept {
    const std::uint32_t sign = (bits & 0x8000U) << 16;
    const std::uint32_t magnitude = bits & 0x7fffU;
    if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f80'0000U | (magnitude << 13));
    // The code produces no subnormal float, since programs may flush subnormal floats to zero.
    const float positive = magnitude < 0x400U ? static_cast<float>(magnitude) * 0x1p-24F
                                              : std::bit_cast<float>((magnitude << 13) + 0x3800'0000U);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(positive));
}

/// Rounds to the nearest bfloat16: ties to even, NaN to a quiet NaN.
[[nodiscard]] constexpr std::uint16_t float_to_bfloat16_bits(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fff'ffffU) > 0x7f80'0000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
    return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

[[nodiscard]] constexpr float bfloat16_bits_to_float(std::uint16_t bits) noexcept {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

}  // namespace detail

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction. For storage only; arithmetic is done in float.
struct float16 {
    std::uint16_t bits = 0;  ///< The bits, as stored in memory.

    constexpr float16() = default;
    /// Rounds to the nearest value, ties to even.
    constexpr explicit float16(float value) noexcept : bits(detail::float_to_float16_bits(value)) {}
    /// Converts exactly.
    constexpr explicit operator float() const noexcept { return detail::float16_bits_to_float(bits); }

    friend constexpr bool operator==(float16 a, float16 b) noexcept {
        return static_cast<float>(a) == static_cast<float>(b);
    }
};

/// The upper half of a float: 8 bits of exponent, 7 of fraction. For storage only; arithmetic is done in
/// float.
struct bfloat16 {
    std::uint16_t bits = 0;  ///< The bits, as stored in memory.

    constexpr bfloat16() = default;
    /// Rounds to the nearest value, ties to even.
    constexpr explicit bfloat16(float value) noexcept : bits(detail::float_to_bfloat16_bits(value)) {}
    /// Converts exactly.
    constexpr explicit operator float() const noexcept { return detail::bfloat16_bits_to_float(bits); }

    friend constexpr bool operator==(bfloat16 a, bfloat16 b) noexcept {
        return static_cast<float>(a) == static_cast<float>(b);
    }
};

}  // namespace DPTK_NAMESPACE
