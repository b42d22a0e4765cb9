#pragma once

#include "dptk/data/computed_permutation.hpp"

#include <bit>
#include <utility>

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

DPTK_INLINE std::size_t ComputedPermutation::operator[](std::size_t position) const noexcept {
    if (!table_.empty()) return table_[position];
    std::uint64_t element = position;
    do {
        element = pass(element);
    } while (element >= size_);
    return static_cast<std::size_t>(element);
}

DPTK_INLINE std::uint64_t ComputedPermutation::pass(std::uint64_t element) const noexcept {
    // Of an odd number of bits one half has one more: the halves change places, and sizes, in each round.
    unsigned low_bits = low_bits_;
    unsigned high_bits = high_bits_;
    std::uint64_t low = element & ones(low_bits);
    std::uint64_t high = element >> low_bits;
    for (const std::uint64_t key : keys_) {
        const std::uint64_t next = high ^ (mix(low ^ key) & ones(high_bits));
        high = low;
        low = next;
        std::swap(low_bits, high_bits);
    }
    return high << low_bits | low;
}

}  // namespace DPTK_NAMESPACE
