// Computes medians and finds the slowest rank. The median of an even number of values is the lower of the two
// middle values, so that of two ranks one can be reported as slow.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "facts.hpp"

namespace info {

/// A rank is reported as slow if its time is more than this factor times the median.
inline constexpr double slow_ratio = 1.3;

[[nodiscard]] inline double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Finds the slowest rank. `seconds[rank]` is the time of a rank.
[[nodiscard]] inline Slowest slowest_of(const std::vector<double>& seconds) {
    const auto longest = std::ranges::max_element(seconds);
    if (longest == seconds.end()) return {};
    const double usual = median(seconds);
    return {static_cast<int>(longest - seconds.begin()), usual > 0 ? *longest / usual : 1};
}

}  // namespace info
