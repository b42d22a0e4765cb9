/// Datasets that are made of others: Subset, Concat and Map; and TensorDataset, over a program's own arrays.
/// They keep references to the datasets and arrays, which must outlive them, and copy nothing.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/dataset.hpp"
#include "dptk/data/fingerprint.hpp"

namespace DPTK_NAMESPACE {

/// The samples of a dataset at given indices, in that order.
template <IndexableDataset Dataset>
class Subset {
  public:
    /// Throws ArgumentError if an index is not below the dataset's size.
    Subset(const Dataset& dataset, std::vector<std::size_t> indices)
        : dataset_(&dataset), indices_(std::move(indices)) {
        for (const std::size_t index : indices_) {
            if (index >= dataset.size())
                throw ArgumentError(
                    detail::text("Subset: expected indices below ", dataset.size(), ", found ", index));
        }
    }
    Subset(const Dataset&&, std::vector<std::size_t>) = delete;

    /// Returns the number of indices.
    [[nodiscard]] std::size_t size() const noexcept { return indices_.size(); }

    /// Returns the dataset's sample at index number `i`, which must be below size().
    [[nodiscard]] decltype(auto) operator[](std::size_t i) const { return sample_of(*dataset_, indices_[i]); }

    /// Returns a fingerprint of the dataset and the indices, if the dataset has one of its own.
    [[nodiscard]] std::uint64_t fingerprint() const
        requires detail::HasFingerprint<Dataset>
    {
        return detail::hash_sample(std::pair(dataset_->fingerprint(), std::span(indices_)),
                                   detail::fnv1a(""));
    }

    /// Returns the names of the dataset's classes, if it has any.
    [[nodiscard]] decltype(auto) class_names() const
        requires requires(const Dataset& dataset) { dataset.class_names(); }
    {
        return dataset_->class_names();
    }

  private:
    const Dataset* dataset_;
    std::vector<std::size_t> indices_;
};

/// The samples of several datasets of one type, one dataset after the other.
template <IndexableDataset Dataset>
class Concat {
  public:
    /// Makes a dataset of these, in this order.
    explicit Concat(std::vector<std::reference_wrapper<const Dataset>> datasets)
        : datasets_(std::move(datasets)) {
        for (const Dataset& dataset : datasets_) {
            size_ += static_cast<std::size_t>(dataset.size());
            ends_.push_back(size_);
        }
    }

    /// Returns the number of samples of all datasets together.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Returns sample `i`, which must be below size().
    [[nodiscard]] decltype(auto) operator[](std::size_t i) const {
        const auto end = std::upper_bound(ends_.begin(), ends_.end(), i);
        const auto which = static_cast<std::size_t>(end - ends_.begin());
        return sample_of(datasets_[which].get(), which == 0 ? i : i - ends_[which - 1]);
    }

  private:
    std::vector<std::reference_wrapper<const Dataset>> datasets_;
    std::vector<std::size_t> ends_;  // by dataset: the index after its last sample
    std::size_t size_ = 0;
};

/// A dataset whose sample i is fn(dataset[i]). With a DataLoader, several threads call `fn` at the same time.
template <IndexableDataset Dataset, class Fn>
class Map {
  public:
    /// Makes a dataset with the samples of `dataset`, to each of which `fn` is applied when it is read.
    Map(const Dataset& dataset, Fn fn) : dataset_(&dataset), fn_(std::move(fn)) {}
    Map(const Dataset&&, Fn) = delete;

    /// Returns the number of samples.
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(dataset_->size()); }

    /// Returns the result of `fn` for sample `i`.
    [[nodiscard]] decltype(auto) operator[](std::size_t i) const {
        return std::invoke(fn_, sample_of(*dataset_, i));
    }

  private:
    const Dataset* dataset_;
    Fn fn_;
};

/// Rows of several arrays that belong together: sample i is a tuple of row i of each array, as a std::span.
/// The rows of an array have equal lengths: its size divided by the number of samples.
template <class... T>
class TensorDataset {
  public:
    /// Each array is a contiguous range. Throws ArgumentError if its size is not a multiple of `samples`.
    explicit TensorDataset(std::size_t samples, std::span<const T>... arrays)
        : samples_(samples), arrays_(Rows<T>{arrays.data(), samples == 0 ? 0 : arrays.size() / samples}...) {
        const auto check = [&](std::size_t size) {
            if (samples == 0 ? size != 0 : size % samples != 0)
                throw ArgumentError(detail::text("TensorDataset: expected arrays of a multiple of ", samples,
                                                 " elements, found one of ", size));
        };
        (check(arrays.size()), ...);
    }

    /// Returns the number of samples.
    [[nodiscard]] std::size_t size() const noexcept { return samples_; }

    /// Returns row `i` of each array, as spans. `i` must be below size().
    [[nodiscard]] std::tuple<std::span<const T>...> operator[](std::size_t i) const noexcept {
        return std::apply([&](const auto&... array) { return std::tuple(array[i]...); }, arrays_);
    }

  private:
    template <class Element>
    struct Rows {
        const Element* first;
        std::size_t length;  // of each row

        [[nodiscard]] std::span<const Element> operator[](std::size_t i) const noexcept {
            return {first + i * length, length};
        }
    };

    std::size_t samples_;
    std::tuple<Rows<T>...> arrays_;
};

/// Deduces the element types from the arrays.
template <std::ranges::contiguous_range... R>
TensorDataset(std::size_t, const R&...) -> TensorDataset<std::ranges::range_value_t<R>...>;

}  // namespace DPTK_NAMESPACE
