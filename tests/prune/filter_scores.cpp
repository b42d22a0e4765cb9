#include "dptk/prune/filter_scores.hpp"

#include <doctest/doctest.h>
#include <dptk/core/error.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "nn/support.hpp"
#include "support/ranks.hpp"

using namespace dptk::nn;
using Scores = std::vector<double>;

TEST_CASE("scores of filters by hand") {
    const std::vector<double> weights{0, 0, 3, -4, -3, 4, 0, 1};  // four filters of two weights
    CHECK(filter_scores(FilterScore::l1, weights, 4) == Scores{0, 7, 7, 1});
    CHECK(filter_scores(FilterScore::l2, weights, 4) == Scores{0, 5, 5, 1});
    const double a = std::sqrt(9.0 + 25.0), b = std::sqrt(9.0 + 9.0);
    const Scores fpgm = filter_scores(FilterScore::fpgm, weights, 4);
    CHECK(dptk::nn::testing::difference(fpgm, Scores{5 + 5 + 1, 5 + 10 + a, 5 + 10 + b, 1 + a + b}) < 1e-15);
    CHECK(filter_scores(FilterScore::slim, std::vector<double>{-2, 0, 0.5}, 3) == Scores{2, 0, 0.5});
}

TEST_CASE("the distances of long filters have all of their elements") {
    const std::vector<double> weights{1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0};
    CHECK(filter_scores(FilterScore::fpgm, weights, 2)[0] == doctest::Approx(std::sqrt(7.0)));
}

TEST_CASE("weights that do not fit the number of filters are an error") {
    std::string text;
    const std::vector<double> weights(7);
    for (const std::size_t filters : {0U, 2U})
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { static_cast<void>(filter_scores(FilterScore::l1, weights, filters)); }));
    CHECK(text == "filter_scores: expected equally many weights for each of the 2 filters, found 7 weights");
}
