/// What dptk asks of a dataset: a number of samples, and a sample by its index. A std::vector is one, and so
/// is a reader's ImageDataset. What a sample is stays the user's business.
#pragma once

#include <concepts>
#include <cstddef>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Has `size()` samples and gives sample i, from 0 on, by `dataset[i]`.
template <class Dataset>
concept IndexableDataset = requires(const Dataset& dataset, std::size_t index) {
    { dataset.size() } -> std::convertible_to<std::size_t>;
    dataset[index];
};

}  // namespace DPTK_NAMESPACE
