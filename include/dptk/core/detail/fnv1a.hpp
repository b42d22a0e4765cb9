/// The FNV-1a hash, which has the same value on every machine.
#pragma once

#include <cstdint>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the 64-bit FNV-1a hash of `bytes`, continued from `hash`. See
/// http://www.isthe.com/chongo/tech/comp/fnv.
[[nodiscard]] std::uint64_t fnv1a(std::string_view bytes,
                                  std::uint64_t hash = 14695981039346656037U) noexcept;

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/fnv1a.ipp"
#endif
