/// Scores of filters: the filters with the smallest ones are pruned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::nn {

/// What makes a filter important.
enum class FilterScore : std::uint8_t {
    l1,    ///< The sum of |weight| of a filter (Li et al. 2017, https://arxiv.org/abs/1608.08710).
    l2,    ///< The square root of the sum of weight² of a filter.
    fpgm,  ///< The sum of the Euclidean distances to the other filters of the convolution: filters near their
           ///< geometric median are redundant (He et al. 2019, https://arxiv.org/abs/1811.00250).
    slim   ///< |weight| of the channel in its batch norms (Liu et al. 2017,
           ///< https://arxiv.org/abs/1708.06519). Train with add_slim_gradients().
};

/// Returns the scores of `filters` filters, whose weights are `weights`, row-major with the filters first: a
/// Conv2d's, or for FilterScore::slim, a BatchNorm2d's. Takes time for FilterScore::fpgm, proportional to the
/// square of the number of filters. Throws ArgumentError if the number of weights is not a multiple of the
/// number of filters.
[[nodiscard]] std::vector<double> filter_scores(FilterScore score, std::span<const double> weights,
                                                std::size_t filters);

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/prune/filter_scores.ipp"
#endif
