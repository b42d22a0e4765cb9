/// random_split(), which divides a dataset into a training and a validation part.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/random_permutation.hpp"

namespace DPTK_NAMESPACE {

/// The indices of the two parts of a dataset, each in ascending order, for two Subsets.
struct SplitIndices {
    std::vector<std::size_t> training;    ///< The samples to train with.
    std::vector<std::size_t> validation;  ///< The other samples.
};

/// Selects a random fraction of `size` samples, rounded to a whole number, for validation. The result depends
/// on the arguments alone, so that it is the same on all ranks. Throws ArgumentError if `fraction` is not in
/// [0, 1].
[[nodiscard]] inline SplitIndices random_split(std::size_t size, double fraction, std::uint64_t seed) {
    if (!(fraction >= 0 && fraction <= 1))
        throw ArgumentError(detail::text("random_split: expected a fraction in [0, 1], found ", fraction));
    std::vector<std::size_t> order = random_permutation(size, seed);
    const auto middle =
        order.begin() + static_cast<std::ptrdiff_t>(std::llround(static_cast<double>(size) * fraction));
    std::sort(order.begin(), middle);
    std::sort(middle, order.end());
    return {.training = {middle, order.end()}, .validation = {order.begin(), middle}};
}

}  // namespace DPTK_NAMESPACE
