#include "dptk/data/random_permutation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace {

using Order = std::vector<std::uint32_t>;

Order permutation(std::size_t n, std::uint64_t seed) {
    return dptk::random_permutation<std::uint32_t>(n, seed);
}

Order large_permutation(std::size_t n, std::uint64_t seed) {
    return dptk::detail::large_random_permutation<std::uint32_t>(n, seed);
}

bool holds_each_index_once(Order order) {
    Order expected(order.size());
    std::iota(expected.begin(), expected.end(), 0U);
    std::sort(order.begin(), order.end());
    return order == expected;
}

}  // namespace

TEST_CASE("a random permutation equals torch.randperm's") {
    CHECK(permutation(10, 0) == Order{4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
    CHECK(permutation(10, 1) == Order{5, 6, 1, 2, 0, 8, 9, 3, 7, 4});
    CHECK(permutation(10, 42) == Order{2, 6, 1, 8, 4, 5, 0, 9, 3, 7});
    CHECK(permutation(11, 0) == Order{10, 0, 4, 3, 5, 8, 2, 1, 9, 7, 6});
}

TEST_CASE("only the low 32 bits of a permutation's seed count, as in torch") {
    constexpr std::uint64_t high_bit = std::uint64_t{1} << 32;
    CHECK(permutation(10, high_bit + 1) == permutation(10, 1));
    CHECK(large_permutation(10, high_bit + 1) == large_permutation(10, 1));
}

TEST_CASE("permutations of no and of one index exist") {
    CHECK(permutation(0, 3).empty());
    CHECK(permutation(1, 3) == Order{0});
    CHECK(large_permutation(0, 3).empty());
    CHECK(large_permutation(1, 3) == Order{0});
}

// PyTorch uses this form only for n of at least 214,748,364. The expected values were computed by a
// transcription of its loop to Python over NumPy's MT19937.
TEST_CASE("the algorithm for large n draws 64 bits per index, from the first index on") {
    CHECK(dptk::detail::first_large_permutation == 214'748'364);
    CHECK(large_permutation(10, 0) == Order{8, 2, 6, 3, 5, 1, 0, 9, 7, 4});
    CHECK(large_permutation(10, 1) == Order{8, 4, 2, 0, 7, 5, 3, 6, 9, 1});
    CHECK(large_permutation(10, 42) == Order{6, 0, 5, 8, 7, 2, 3, 1, 9, 4});
}

TEST_CASE("both algorithms contain each index once") {
    for (std::size_t n = 0; n < 300; ++n) {
        CAPTURE(n);
        CHECK(holds_each_index_once(permutation(n, n)));
        CHECK(holds_each_index_once(large_permutation(n, n)));
    }
}

TEST_CASE("a permutation is the same in every index type that is wide enough") {
    const std::vector<std::uint8_t> narrow = dptk::random_permutation<std::uint8_t>(256, 5);
    const std::vector<std::size_t> wide = dptk::random_permutation(256, 5);
    CHECK(std::equal(narrow.begin(), narrow.end(), wide.begin(), wide.end()));
}

TEST_CASE("an index type that is too narrow for n is refused") {
    CHECK_THROWS_WITH_AS(static_cast<void>(dptk::random_permutation<std::uint8_t>(257, 0)),
                         doctest::Contains("holds 256, but the largest value of the given type is 255"),
                         dptk::ArgumentError);
}
