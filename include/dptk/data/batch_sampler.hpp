/// BatchSampler splits a sampler's indices into batches. All ranks have the same number of batches, so that
/// each batch may make collective calls. If the ranks' numbers of indices differ, a rank's last batches are
/// shorter or empty.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <ranges>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// How the indices are split into batches.
struct BatchSamplerOptions {
    /// Drop the last batch if a rank cannot fill it. All batches are then full.
    bool drop_last = false;
};

/// A range of one rank's indices that also returns the largest and the smallest number of indices of any
/// rank.
template <class Sampler>
concept ShardedSampler =
    std::ranges::random_access_range<const Sampler> && std::ranges::sized_range<const Sampler> &&
    std::same_as<std::ranges::range_value_t<const Sampler>, std::size_t> && requires(const Sampler& sampler) {
        { sampler.largest_share() } -> std::same_as<std::size_t>;
        { sampler.smallest_share() } -> std::same_as<std::size_t>;
    };

/// The batches of this rank: a range of `std::span<const std::size_t>` whose length is the same on all
/// ranks. Keeps a reference to the sampler and always uses its current epoch. A span is valid until its
/// iterator is incremented.
template <ShardedSampler Sampler>
class BatchSampler {
  public:
    class Iterator;

    /// `batch_size` is the number of indices in a batch on each rank. Throws ArgumentError if it is 0.
    BatchSampler(const Sampler& sampler, std::size_t batch_size, BatchSamplerOptions options = {})
        : sampler_(&sampler), batch_size_(batch_size), options_(options) {
        if (batch_size == 0) throw ArgumentError("BatchSampler: batch_size must be at least 1, found 0");
    }

    /// Deleted, since a temporary sampler would be destroyed before the first batch.
    BatchSampler(const Sampler&&, std::size_t, BatchSamplerOptions = {}) = delete;

    /// Returns the number of batches, which is equal on all ranks.
    [[nodiscard]] std::size_t size() const noexcept {
        if (options_.drop_last) return sampler_->smallest_share() / batch_size_;
        const std::size_t share = sampler_->largest_share();
        return share / batch_size_ + (share % batch_size_ == 0 ? 0 : 1);
    }

    /// Returns the number of indices in a full batch on each rank.
    [[nodiscard]] std::size_t batch_size() const noexcept { return batch_size_; }

    /// Returns batch `index`, which must be less than size(). It has `batch_size` indices; at the end of
    /// the epoch it may have fewer, or none. Keep the vector in a variable: a span does not keep the vector
    /// alive.
    [[nodiscard]] std::vector<std::size_t> operator[](std::size_t index) const {
        std::vector<std::size_t> batch;
        read(index, batch);
        return batch;
    }

    /// Writes batch `index` to `batch`, whose memory is reused.
    void read(std::size_t index, std::vector<std::size_t>& batch) const {
        const auto indices = std::ranges::begin(*sampler_);
        const auto share = static_cast<std::size_t>(std::ranges::size(*sampler_));
        const std::size_t first = std::min(index * batch_size_, share);
        const std::size_t last = first + std::min(batch_size_, share - first);
        batch.assign(indices + static_cast<std::ptrdiff_t>(first),
                     indices + static_cast<std::ptrdiff_t>(last));
    }

    /// Returns whether batch `index` is full on all ranks.
    [[nodiscard]] bool is_full_everywhere(std::size_t index) const {
        return index < sampler_->smallest_share() / batch_size_;
    }

    /// Returns the options of the sampler of indices.
    [[nodiscard]] const auto& options() const noexcept
        requires requires(const Sampler& sampler) { sampler.options(); }
    {
        return sampler_->options();
    }

    /// Returns the current epoch of the sampler of indices.
    [[nodiscard]] auto epoch() const noexcept
        requires requires(const Sampler& sampler) { sampler.epoch(); }
    {
        return sampler_->epoch();
    }

    /// Returns an iterator to the first batch. Each batch is made when the iterator reaches it.
    [[nodiscard]] Iterator begin() const {
        if constexpr (requires { sampler_->note_pass(); }) sampler_->note_pass();
        return {*this, 0};
    }

    /// Returns an iterator past the last batch.
    [[nodiscard]] Iterator end() const { return {*this, size()}; }

  private:
    const Sampler* sampler_;
    std::size_t batch_size_;
    BatchSamplerOptions options_;
};

/// An iterator that owns the current batch; `*iterator` is a span of this batch. Must not outlive the
/// BatchSampler.
template <ShardedSampler Sampler>
class BatchSampler<Sampler>::Iterator {
  public:
    using value_type = std::span<const std::size_t>;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    Iterator() = default;

    /// Makes an iterator to batch `index`; past the last batch if `index` is size().
    Iterator(const BatchSampler& batches, std::size_t index) : batches_(&batches), index_(index) { fill(); }

    [[nodiscard]] value_type operator*() const noexcept { return batch_; }

    Iterator& operator++() {
        ++index_;
        fill();
        return *this;
    }

    void operator++(int) { ++*this; }

    friend bool operator==(const Iterator& a, const Iterator& b) noexcept {
        return a.batches_ == b.batches_ && a.index_ == b.index_;
    }

  private:
    void fill() {
        if (index_ < batches_->size()) batches_->read(index_, batch_);
    }

    const BatchSampler* batches_ = nullptr;
    std::size_t index_ = 0;
    std::vector<std::size_t> batch_;
};

}  // namespace DPTK_NAMESPACE
