/// A random permutation of 0..n-1 of which each element is computed by itself, in O(1) memory: for datasets
/// whose order is too long to write down.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A keyed bijection: a Feistel network (Luby and Rackoff, 1988) over the next power of two, through which an
/// element goes again while it is not below n (cycle walking: Black and Rogaway, "Ciphers with Arbitrary
/// Finite Domains", 2002). Not for secrets. Up to 1024 elements are written down, since a network that small
/// would shuffle badly.
class ComputedPermutation {
  public:
    /// `n` elements in the order that belongs to the key. Takes time and memory that do not grow with n.
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

    /// The number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Element `position`, which is below size(). Expected time: that of less than two passes of the network.
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
    static constexpr std::size_t rounds = 8;  // even: an odd number of bits has its halves back then

    /// A permutation of all 64-bit words that leaves no bit without an effect on any other: the end of
    /// SplitMix64, https://prng.di.unimi.it/splitmix64.c
    [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t word) noexcept {
        word = (word ^ (word >> 30)) * 0xbf58'476d'1ce4'e5b9U;
        word = (word ^ (word >> 27)) * 0x94d0'49bb'1331'11ebU;
        return word ^ (word >> 31);
    }

    [[nodiscard]] std::uint64_t pass(std::uint64_t element) const noexcept {
        // With an odd number of bits, one half has one more: the halves swap places and sizes in each round.
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
