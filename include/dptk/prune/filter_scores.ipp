#pragma once

#include "dptk/prune/filter_scores.hpp"

#include <cmath>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn {

namespace detail {

[[nodiscard]] DPTK_INLINE double absolute_sum(std::span<const double> values) {
    double sum = 0;
    for (const double value : values) sum += std::abs(value);
    return sum;
}

[[nodiscard]] DPTK_INLINE double euclidean_norm(std::span<const double> values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum);
}

[[nodiscard]] DPTK_INLINE double euclidean_distance(std::span<const double> a, std::span<const double> b) {
    // Independent sums, so that an addition need not wait for the previous one.
    constexpr std::size_t lanes = 4;
    double sums[lanes] = {};
    std::size_t i = 0;
    for (; i + lanes <= a.size(); i += lanes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            const double difference = a[i + lane] - b[i + lane];
            sums[lane] += difference * difference;
        }
    }
    for (; i < a.size(); ++i) sums[0] += (a[i] - b[i]) * (a[i] - b[i]);
    return std::sqrt(sums[0] + sums[1] + sums[2] + sums[3]);
}

}  // namespace detail

DPTK_INLINE std::vector<double> filter_scores(FilterScore score, std::span<const double> weights,
                                              std::size_t filters) {
    if (filters == 0 || weights.size() % filters != 0)
        throw ArgumentError(
            dptk::detail::text("filter_scores: expected equally many weights for each of the ", filters,
                               " filters, found ", weights.size(), " weights"));
    const std::size_t count = weights.size() / filters;
    const auto filter = [&](std::size_t i) { return weights.subspan(i * count, count); };
    std::vector<double> scores(filters);
    for (std::size_t i = 0; i < filters; ++i) {
        switch (score) {
            case FilterScore::l1:
            case FilterScore::slim: scores[i] = detail::absolute_sum(filter(i)); break;
            case FilterScore::l2: scores[i] = detail::euclidean_norm(filter(i)); break;
            case FilterScore::fpgm:
                for (std::size_t j = 0; j < i; ++j) {
                    const double distance = detail::euclidean_distance(filter(i), filter(j));
                    scores[i] += distance;
                    scores[j] += distance;
                }
        }
    }
    return scores;
}

}  // namespace DPTK_NAMESPACE::nn
