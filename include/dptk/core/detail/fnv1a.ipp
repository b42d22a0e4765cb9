#pragma once

#include "dptk/core/detail/fnv1a.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::uint64_t fnv1a(std::string_view bytes, std::uint64_t hash) noexcept {
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
    return hash;
}

}  // namespace DPTK_NAMESPACE::detail
