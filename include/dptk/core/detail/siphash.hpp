/// SipHash-2-4 with 128 bits: a keyed hash. Without the key, nobody can compute the hash of a new input.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// 128 bits, as two numbers whose bytes are in little-endian order.
using Word128 = std::array<std::uint64_t, 2>;

/// Returns the SipHash-2-4-128 of `bytes`. See Aumasson and Bernstein, "SipHash: a fast short-input PRF",
/// 2012, and the reference implementation at https://github.com/veorq/SipHash for 128 bits.
[[nodiscard]] Word128 siphash(const Word128& key, std::string_view bytes) noexcept;

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/siphash.ipp"
#endif
