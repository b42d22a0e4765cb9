#include "dptk/data/sample_random.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

using dptk::SampleRandom;

TEST_CASE("a sample's random numbers depend on seed, epoch and index alone") {
    std::set<std::uint64_t> first;
    for (const std::uint64_t seed : {0U, 1U, 7U}) {
        for (const std::int64_t epoch : {0, 1, -1}) {
            for (std::size_t index = 0; index < 100; ++index) {
                SampleRandom one(seed, epoch, index), same(seed, epoch, index);
                first.insert(one.bits());
                static_cast<void>(same.bits());
                CHECK(one.bits() == same.bits());
            }
        }
    }
    CHECK(first.size() == 900);
}

TEST_CASE("random numbers are in their ranges, and evenly distributed") {
    constexpr std::size_t count = 60000;
    std::vector<std::size_t> hits(6);
    double sum = 0;
    for (std::size_t index = 0; index < count; ++index) {
        SampleRandom random(5, 2, index);
        const double x = random.between(-1, 3);
        REQUIRE(x >= -1);
        REQUIRE(x < 3);
        sum += x;
        ++hits.at(random.below(6));
        CHECK(random.below(1) == 0);
    }
    CHECK(sum / count == doctest::Approx(1).epsilon(0.02));
    for (const std::size_t hit : hits)
        CHECK(static_cast<double>(hit) == doctest::Approx(10000).epsilon(0.04));
}
