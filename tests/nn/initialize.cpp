#include "dptk/nn/initialize.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

using namespace dptk::nn;

TEST_CASE("initial values are uniform between plus and minus one over the root of the fan-in") {
    Generator generator(5);
    const std::vector<double> values = initial_values<double>(100000, 16, generator);
    double sum = 0;
    double squares = 0;
    for (const double value : values) {
        sum += value;
        squares += value * value;
    }
    const double n = static_cast<double>(values.size());
    CHECK(std::ranges::min(values) >= -0.25);
    CHECK(std::ranges::min(values) < -0.2499);
    CHECK(std::ranges::max(values) < 0.25);
    CHECK(std::ranges::max(values) > 0.2499);
    CHECK(std::abs(sum / n) < 0.002);
    CHECK(squares / n == doctest::Approx(0.25 * 0.25 / 3).epsilon(0.02));
}

TEST_CASE("one seed gives the same values everywhere") {
    Generator generator(1);
    // The standard specifies the output of mt19937_64, and the conversion is exact.
    CHECK(uniform_symmetric(generator) == (2469588189546311528ULL >> 11) / 4503599627370496.0 - 1);
    Generator a(7);
    Generator b(7);
    const std::vector<float> floats = initial_values<float>(50, 9, a);
    const std::vector<double> doubles = initial_values<double>(50, 9, b);
    for (std::size_t i = 0; i < 50; ++i) CHECK(floats[i] == static_cast<float>(doubles[i]));
}
