/// The dataset concept: a number of samples, and access to a sample by its index. A std::vector and
/// ImageDataset satisfy it. dptk makes no assumption about the type of a sample.
#pragma once

#include <concepts>
#include <cstddef>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A dataset with `size()` samples, in which `dataset[i]` is sample i, counted from 0.
template <class Dataset>
concept IndexableDataset = requires(const Dataset& dataset, std::size_t index) {
    { dataset.size() } -> std::convertible_to<std::size_t>;
    dataset[index];
};

}  // namespace DPTK_NAMESPACE
