/// Random permutations of 0..n-1, equal to those of torch.randperm on the CPU for the same n and seed.
/// PyTorch uses one algorithm for small n and, since version 2.6, another for n of at least 214,748,364;
/// this header implements both.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// The smallest n for which torch.randperm draws 64 bits for each element.
inline constexpr std::size_t first_large_permutation = std::numeric_limits<std::uint32_t>::max() / 20;

/// PyTorch's generator uses only the low 32 bits of its seed.
[[nodiscard]] inline std::mt19937 torch_generator(std::uint64_t seed) {
    return std::mt19937(static_cast<std::uint32_t>(seed));
}

[[nodiscard]] inline std::uint32_t draw_32_bits(std::mt19937& generator) {
    return static_cast<std::uint32_t>(generator());
}

[[nodiscard]] inline std::uint64_t draw_64_bits(std::mt19937& generator) {
    const std::uint64_t high = draw_32_bits(generator);
    return high << 32 | draw_32_bits(generator);
}

/// The algorithm for n below `first_large_permutation`.
template <std::unsigned_integral Index>
[[nodiscard]] std::vector<Index> small_random_permutation(std::size_t n, std::uint64_t seed) {
    std::mt19937 generator = torch_generator(seed);
    std::vector<Index> order(n);
    std::iota(order.begin(), order.end(), Index{0});
    for (std::size_t i = 0; i + 1 < n; ++i) {
        const std::uint32_t offset = draw_32_bits(generator) % static_cast<std::uint32_t>(n - i);
        std::swap(order[i], order[i + offset]);
    }
    return order;
}

/// The algorithm for n of at least `first_large_permutation`. For smaller n it also returns a permutation,
/// but not PyTorch's.
template <std::unsigned_integral Index>
[[nodiscard]] std::vector<Index> large_random_permutation(std::size_t n, std::uint64_t seed) {
    std::mt19937 generator = torch_generator(seed);
    std::vector<Index> order(n);
    for (std::size_t i = 0; i < n; ++i) {
        const auto j = static_cast<std::size_t>(draw_64_bits(generator) % (i + 1));
        order[i] = order[j];
        order[j] = static_cast<Index>(i);
    }
    return order;
}

}  // namespace detail

/// Returns a permutation of 0..n-1, equal to `torch.randperm(n)` with a fresh CPU generator seeded with
/// `seed`, of which only the low 32 bits are used. `Index` is any unsigned type. Throws ArgumentError if it
/// cannot hold n - 1. Allocates n elements of this type.
template <std::unsigned_integral Index = std::size_t>
[[nodiscard]] std::vector<Index> random_permutation(std::size_t n, std::uint64_t seed) {
    constexpr std::size_t largest = std::numeric_limits<Index>::max();
    if (n != 0 && n - 1 > largest) {
        throw ArgumentError(detail::text("a permutation of ", n, " indices needs an index type that holds ",
                                         n - 1, ", but the largest value of the given type is ", largest));
    }
    return n < detail::first_large_permutation ? detail::small_random_permutation<Index>(n, seed)
                                               : detail::large_random_permutation<Index>(n, seed);
}

}  // namespace DPTK_NAMESPACE
