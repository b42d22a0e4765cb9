#pragma once

#include "dptk/data/computed_permutation.hpp"

#include <bit>

#include "dptk/data/random_permutation.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE ComputedPermutation::ComputedPermutation(std::size_t n, std::uint64_t key) : size_(n) {
    if (n <= largest_table) {
        for (const std::uint16_t element : random_permutation<std::uint16_t>(n, mix(key)))
            table_.push_back(element);
        return;
    }
    const auto bits = static_cast<unsigned>(std::bit_width(n - 1));
    low_bits_ = bits / 2;
    high_bits_ = bits - low_bits_;
    for (std::uint64_t& round : keys_) round = key = mix(key + 0x9e37'79b9'7f4a'7c15U);
}

}  // namespace DPTK_NAMESPACE
