/// ComputedPermutation, a random permutation of 0..n-1 in O(1) memory. Each element is computed
/// independently. For datasets that are too large to store their order.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A keyed bijection: a Feistel network (Luby and Rackoff, 1988) over the next power of two. Elements that
/// are not below n pass through the network again (cycle walking: Black and Rogaway, "Ciphers with
/// Arbitrary Finite Domains", 2002). Not cryptographically secure. Permutations of up to 1024 elements are
/// stored in a table, since a network that small would shuffle badly.
class ComputedPermutation {
  public:
    /// Makes the permutation of `n` elements that `key` selects. Time and memory do not grow with n.
    ComputedPermutation(std::size_t n, std::uint64_t key) : size_(n) {
        if (n <= largest_table) {
            fill_table(key);
            return;
        }
        const auto bits = static_cast<unsigned>(std::bit_width(n - 1));
        low_bits_ = bits / 2;
        high_bits_ = bits - low_bits_;
        for (std::uint64_t& round : keys_) round = key = mix(key + 0x9e37'79b9'7f4a'7c15U);
    }

    /// Returns the number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Returns element `position`, which must be less than size(). On average this takes less than two
    /// passes through the network.
    [[nodiscard]] std::size_t operator[](std::size_t position) const noexcept {
        if (!table_.empty()) return table_[position];
        std::uint64_t element = position;
        do {
            element = pass(element);
        } while (element >= size_);
        return static_cast<std::size_t>(element);
    }

  private:
    static constexpr std::size_t largest_table = 1024;
    static constexpr std::size_t rounds = 8;  // must be even, so that each half ends with its initial size

    /// A permutation of all 64-bit words in which each bit affects every other bit: the finalizer of
    /// SplitMix64, https://prng.di.unimi.it/splitmix64.c
    [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t word) noexcept {
        word = (word ^ (word >> 30)) * 0xbf58'476d'1ce4'e5b9U;
        word = (word ^ (word >> 27)) * 0x94d0'49bb'1331'11ebU;
        return word ^ (word >> 31);
    }

    [[nodiscard]] std::uint64_t pass(std::uint64_t element) const noexcept {
        // The halves are exchanged in each round, and with them their sizes: if the number of bits is odd,
        // one half has one bit more.
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

    void fill_table(std::uint64_t key);

    [[nodiscard]] static constexpr std::uint64_t ones(unsigned bits) noexcept {
        return (std::uint64_t{1} << bits) - 1;
    }

    std::size_t size_;
    unsigned low_bits_ = 0;
    unsigned high_bits_ = 0;
    std::array<std::uint64_t, rounds> keys_{};
    std::vector<std::uint16_t> table_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/computed_permutation.ipp"
#endif
