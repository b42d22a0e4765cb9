#pragma once

#include "dptk/data/random_permutation.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::mt19937 torch_generator(std::uint64_t seed) {
    return std::mt19937(static_cast<std::uint32_t>(seed));
}

DPTK_INLINE std::uint32_t draw_32_bits(std::mt19937& generator) {
    return static_cast<std::uint32_t>(generator());
}

DPTK_INLINE std::uint64_t draw_64_bits(std::mt19937& generator) {
    const std::uint64_t high = draw_32_bits(generator);
    return high << 32 | draw_32_bits(generator);
}

}  // namespace DPTK_NAMESPACE::detail
