/// The dataset concepts: a number of samples, and access to a sample by its index. A std::vector and
/// ImageDataset satisfy them. dptk makes no assumption about the type of a sample.
#pragma once

#include <concepts>
#include <cstddef>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A dataset with `size()` samples. DistributedSampler requires no more: it only counts.
template <class Dataset>
concept SizedDataset = requires(const Dataset& dataset) {
    { dataset.size() } -> std::convertible_to<std::size_t>;
};

/// A dataset whose sample i, counted from 0, is `dataset[i]`, or `dataset.get(i)` as in PyTorch's C++ API.
template <class Dataset>
concept IndexableDataset =
    SizedDataset<Dataset> && (
                                 requires(const Dataset& dataset, std::size_t index) { dataset[index]; } ||
                                 requires(const Dataset& dataset, std::size_t index) { dataset.get(index); });

/// Returns sample `index`, as dataset[index] or else dataset.get(index).
template <IndexableDataset Dataset>
[[nodiscard]] decltype(auto) sample_of(const Dataset& dataset, std::size_t index) {
    if constexpr (requires { dataset[index]; }) {
        return dataset[index];
    } else {
        return dataset.get(index);
    }
}

}  // namespace DPTK_NAMESPACE
