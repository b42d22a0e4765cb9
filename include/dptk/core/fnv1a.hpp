/// A hash that is the same on every machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace dptk::detail {

/// FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv. Continues from `hash`.
[[nodiscard]] inline std::uint64_t fnv1a(std::string_view bytes,
                                         std::uint64_t hash = 14695981039346656037U) noexcept {
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
    return hash;
}

}  // namespace dptk::detail
