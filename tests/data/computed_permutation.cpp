#include <doctest/doctest.h>
#include <dptk/data/computed_permutation.hpp>
#include <dptk/data/random_permutation.hpp>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

using dptk::ComputedPermutation;

namespace {

[[nodiscard]] bool is_bijection(std::size_t n, std::uint64_t key) {
    const ComputedPermutation order(n, key);
    std::vector<bool> seen(n);
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t element = order[i];
        if (element >= n || seen[element]) return false;
        seen[element] = true;
    }
    return true;
}

/// Returns by how many standard deviations chi-square exceeds the value for a uniform distribution.
[[nodiscard]] double deviations(const std::vector<std::size_t>& counts, double degrees_of_freedom) {
    double total = 0;
    for (const std::size_t count : counts) total += static_cast<double>(count);
    const double expected = total / static_cast<double>(counts.size());
    double chi_square = 0;
    for (const std::size_t count : counts) {
        const double off = static_cast<double>(count) - expected;
        chi_square += off * off / expected;
    }
    return (chi_square - degrees_of_freedom) / std::sqrt(2 * degrees_of_freedom);
}

struct Uniformity {
    double positions;
    double neighbors;
    double far_pairs;
};

/// Tests, over many keys, the distribution of the positions of elements, of adjacent elements and of
/// distant pairs, in cells of n / 16.
template <class MakeOrder>
Uniformity uniformity(std::size_t n, std::size_t keys, MakeOrder&& make_order) {
    constexpr std::size_t cells = 16;
    std::vector<std::size_t> positions(cells * cells);
    std::vector<std::size_t> neighbors(cells * cells);
    std::vector<std::size_t> far_pairs(cells * cells);
    const auto cell = [&](std::size_t element) { return element * cells / n; };
    for (std::uint64_t key = 0; key < keys; ++key) {
        const auto order = make_order(key);
        // Uses one position per key, since positions of one order are not independent.
        const std::size_t at = (key * 7919) % (n - 1);
        ++positions[cell(at) * cells + cell(order[at])];
        ++neighbors[cell(order[at]) * cells + cell(order[at + 1])];
        ++far_pairs[cell(order[at]) * cells + cell(order[(at + n / 2) % n])];
    }
    // Positions are not random: each row has a fixed total.
    return {deviations(positions, cells * (cells - 1)), deviations(neighbors, cells * cells - 1),
            deviations(far_pairs, cells * cells - 1)};
}

void check_uniform(const Uniformity& found) {
    CHECK(std::abs(found.positions) < 5);
    CHECK(std::abs(found.neighbors) < 5);
    CHECK(std::abs(found.far_pairs) < 5);
}

}  // namespace

TEST_CASE("a computed order has each element once") {
    for (std::size_t n = 1; n <= 2100; ++n) CHECK(is_bijection(n, n * 31));
    for (std::size_t n = 2101; n < 65'536; n += 97) CHECK(is_bijection(n, n));
    for (const std::size_t n : {4095U, 4096U, 4097U, 32'767U, 32'768U, 32'769U, 65'535U, 65'536U}) {
        for (const std::uint64_t key : {0U, 1U, 77U}) CHECK(is_bijection(n, key));
    }
    CHECK(ComputedPermutation(0, 1).size() == 0);
    CHECK(ComputedPermutation(1, 1)[0] == 0);
}

TEST_CASE("a computed order of 10^12 elements has no duplicates among the elements tested") {
    constexpr std::size_t n = 1'000'000'000'000;
    const ComputedPermutation order(n, 5);
    std::set<std::size_t> seen;
    for (std::size_t i = 0; i < 200'000; ++i) {
        const std::size_t position = i < 100'000 ? i : i * 4'999'999;
        const std::size_t element = order[position];
        CHECK_MESSAGE(element < n, position);
        CHECK_MESSAGE(seen.insert(element).second, position);
    }
    const ComputedPermutation largest(~std::size_t{0}, 5);
    CHECK(largest[0] != largest[1]);
}

TEST_CASE("a computed order is as uniform as a permutation that is drawn") {
    const auto computed = [](std::size_t n) {
        return [n](std::uint64_t key) { return ComputedPermutation(n, key); };
    };
    check_uniform(uniformity(500, 40'000, computed(500)));
    check_uniform(uniformity(1500, 200'000, computed(1500)));
    check_uniform(uniformity(2048, 200'000, computed(2048)));
    check_uniform(uniformity(100'003, 200'000, computed(100'003)));
    check_uniform(uniformity(
        1500, 5'000, [](std::uint64_t key) { return dptk::random_permutation<std::uint32_t>(1500, key); }));
    // Tests pairs of adjacent elements within one order.
    const ComputedPermutation one(1'000'003, 9);
    std::vector<std::size_t> pairs(64 * 64);
    for (std::size_t i = 0; i + 1 < one.size(); i += 2)
        ++pairs[one[i] * 64 / one.size() * 64 + one[i + 1] * 64 / one.size()];
    CHECK(std::abs(deviations(pairs, 64 * 64 - 1)) < 5);
}

TEST_CASE("another key is another order, and an order is the same on every machine") {
    const ComputedPermutation a(1'000'000, 1);
    const ComputedPermutation b(1'000'000, 2);
    std::size_t equal = 0;
    for (std::size_t i = 0; i < 10'000; ++i) equal += a[i] == b[i] ? 1 : 0;
    CHECK(equal < 10);
    std::size_t hash = 0;
    for (std::size_t i = 0; i < 1000; ++i) hash = hash * 31 + a[i];
    CHECK(hash == 18'312'866'189'375'919'494U);
}
