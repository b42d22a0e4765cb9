/// random_split() and split_by_class(), which divide a dataset into a training and a validation part.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
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

namespace detail {

inline void require_fraction(std::string_view function, double fraction) {
    if (!(fraction >= 0 && fraction <= 1))
        throw ArgumentError(text(function, ": expected a fraction in [0, 1], found ", fraction));
}

}  // namespace detail

/// Selects a random fraction of `size` samples, rounded to a whole number, for validation. The result depends
/// on the arguments alone, so that it is the same on all ranks. Throws ArgumentError if `fraction` is not in
/// [0, 1].
[[nodiscard]] inline SplitIndices random_split(std::size_t size, double fraction, std::uint64_t seed) {
    detail::require_fraction("random_split", fraction);
    std::vector<std::size_t> order = random_permutation(size, seed);
    const auto middle =
        order.begin() + static_cast<std::ptrdiff_t>(std::llround(static_cast<double>(size) * fraction));
    std::sort(order.begin(), middle);
    std::sort(middle, order.end());
    return {.training = {middle, order.end()}, .validation = {order.begin(), middle}};
}

/// Selects a random fraction of the samples of each class, rounded to a whole number, for validation. Unless
/// the fraction is 0 or 1, each class with several samples has at least one in both parts, and a single
/// sample is for training. `labels` has the class of each sample. The result depends on the arguments alone,
/// so that it is the same on all ranks. Throws ArgumentError if `fraction` is not in [0, 1].
[[nodiscard]] inline SplitIndices split_by_class(std::span<const int> labels, double fraction,
                                                 std::uint64_t seed) {
    detail::require_fraction("split_by_class", fraction);
    std::map<int, std::vector<std::size_t>> classes;
    for (const std::size_t index : random_permutation(labels.size(), seed))
        classes[labels[index]].push_back(index);
    SplitIndices split;
    for (const auto& [label, indices] : classes) {
        const std::size_t size = indices.size();
        auto count = static_cast<std::size_t>(std::llround(static_cast<double>(size) * fraction));
        if (fraction > 0 && fraction < 1)
            count = std::clamp(count, std::min<std::size_t>(1, size - 1), size - 1);
        const auto middle = indices.begin() + static_cast<std::ptrdiff_t>(count);
        split.validation.insert(split.validation.end(), indices.begin(), middle);
        split.training.insert(split.training.end(), middle, indices.end());
    }
    std::sort(split.training.begin(), split.training.end());
    std::sort(split.validation.begin(), split.validation.end());
    return split;
}

}  // namespace DPTK_NAMESPACE
