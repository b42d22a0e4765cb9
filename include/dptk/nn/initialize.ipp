#pragma once

#include "dptk/nn/initialize.hpp"

#include <cstdint>

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE double uniform_symmetric(Generator& generator) {
    constexpr auto half = std::int64_t{1} << 52;
    const auto bits = static_cast<std::int64_t>(generator() >> 11);
    return static_cast<double>(bits - half) / static_cast<double>(half);
}

}  // namespace DPTK_NAMESPACE::nn
