/// DistributedSampler distributes the indices of a dataset over the ranks. With the same arguments its
/// indices equal those of torch.utils.data.DistributedSampler, so that C++ and Python runs see the same
/// samples in the same order. `Padding::none` instead counts each sample exactly once, and
/// `Order::computed` needs no memory for the order. A DistributedSampler never communicates: each rank
/// computes its own indices. BatchSampler splits the indices into batches. state() and restore() continue
/// an epoch at the sample at which another run has stopped, also with another number of ranks.
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/computed_permutation.hpp"
#include "dptk/data/dataset.hpp"

namespace DPTK_NAMESPACE {

/// What to do if the number of replicas does not divide the number of samples.
enum class Padding {
    repeat,  ///< As in PyTorch: repeats indices from the start of the order; all ranks have equally many.
    none,    ///< Uses each index once; the first ranks may have one index more than the others.
};

/// How a random order is generated.
enum class Order {
    torch,     ///< PyTorch's order, generated for each epoch. Takes 4 bytes per sample, 8 from 2^32 on.
    computed,  ///< Another order, computed on access: takes no memory.
};

/// Options of DistributedSampler, which must be equal on all ranks. Names are PyTorch's for options that
/// PyTorch has.
struct DistributedSamplerOptions {
    bool shuffle = true;                ///< Use a new random order in each epoch; otherwise 0, 1, 2, ...
    std::uint64_t seed = 0;             ///< For shuffling. Order::torch uses the low 32 bits of seed + epoch.
    bool drop_last = false;             ///< Drop the tail of the order instead of padding it.
    Padding padding = Padding::repeat;  ///< See Padding.
    Order order = Order::torch;         ///< See Order.

    friend bool operator==(const DistributedSamplerOptions&, const DistributedSamplerOptions&) = default;
};

/// How far an epoch has been consumed, for checkpoints.
struct SamplerState {
    std::size_t dataset_size = 0;            ///< The number of samples in the dataset.
    DistributedSamplerOptions options = {};  ///< The sampler's options.
    std::int64_t epoch = 0;                  ///< The current epoch.
    std::size_t consumed = 0;                ///< How many samples all ranks together have consumed.

    /// Returns the state as one line of less than 200 characters.
    [[nodiscard]] std::string to_text() const;

    /// Returns the state that to_text() has converted. Throws FormatError for another text.
    [[nodiscard]] static SamplerState from_text(std::string_view line);

    friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

/// A group of replicas that the caller belongs to, such as a ProcessGroup.
template <class Group>
concept ReplicaGroup = requires(const Group& group) {
    { group.rank() } -> std::same_as<int>;
    { group.size() } -> std::same_as<int>;
};

/// The indices of one rank in the current epoch: a random-access range of std::size_t. The first epoch is
/// 0. Rank r of W has the positions r, r + W, r + 2W, ... of the epoch's order. After restore(), these
/// positions are counted from the first sample that is not yet consumed, until the next epoch.
class DistributedSampler {
  public:
    /// Throws ArgumentError if `num_replicas` is 0, if `rank` is not in [0, num_replicas - 1], or if
    /// `drop_last` is combined with `Padding::none`.
    DistributedSampler(std::size_t dataset_size, std::size_t num_replicas, std::size_t rank,
                       DistributedSamplerOptions options = {});

    /// Uses the number of replicas and the rank of `group`, and keeps no reference to it.
    template <ReplicaGroup Group>
    DistributedSampler(std::size_t dataset_size, const Group& group, DistributedSamplerOptions options = {})
        : DistributedSampler(dataset_size, static_cast<std::size_t>(group.size()),
                             static_cast<std::size_t>(group.rank()), options) {}

    /// Uses the current size of `dataset`; keeps no reference to `dataset` or `group`.
    template <SizedDataset Dataset, ReplicaGroup Group>
    DistributedSampler(const Dataset& dataset, const Group& group, DistributedSamplerOptions options = {})
        : DistributedSampler(static_cast<std::size_t>(dataset.size()), group, options) {}

    /// Selects the epoch whose indices this range has, from its first sample on. Must be called with the same
    /// value on all ranks. Invalidates iterators, unless `epoch` is already the current one: then the call
    /// does nothing.
    void set_epoch(std::int64_t epoch);

    /// Returns the options.
    [[nodiscard]] const DistributedSamplerOptions& options() const noexcept { return options_; }

    /// Returns the current epoch.
    [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }

    /// Returns the number of samples in the dataset.
    [[nodiscard]] std::size_t dataset_size() const noexcept { return dataset_size_; }

    /// Returns the number of ranks that share the dataset.
    [[nodiscard]] std::size_t num_replicas() const noexcept { return num_replicas_; }

    /// Returns the rank whose indices this range has.
    [[nodiscard]] std::size_t rank() const noexcept { return rank_; }

    /// Returns the state after each rank has consumed its first `consumed` indices, or all of its indices if
    /// it has fewer. With Padding::none, a run with any number of ranks that restores this state consumes
    /// each of the epoch's other samples exactly once.
    [[nodiscard]] SamplerState state(std::size_t consumed) const;

    /// Continues the epoch of `state`, without the samples that are consumed. Invalidates iterators. Must be
    /// called with the same state on all ranks. Throws ArgumentError if the dataset's size or the options
    /// differ from this sampler's, or if more samples are consumed than the dataset has.
    void restore(const SamplerState& state);

    /// Continues the epoch of `state` as restore() does, as this rank of a group whose ranks have changed.
    template <ReplicaGroup Group>
    void restore(const SamplerState& state, const Group& group) {
        set_replicas(static_cast<std::size_t>(group.size()), static_cast<std::size_t>(group.rank()));
        restore(state);
    }

    /// Logs a warning, once in a program, if this is the second pass over a shuffled order and set_epoch()
    /// was never called. BatchSampler and DataLoader call it at the start of a pass.
    void note_pass() const noexcept;

    /// Returns the number of indices of this rank, which is the same in every epoch that begins at its first
    /// sample.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Returns index number i of this rank; i must be less than size().
    [[nodiscard]] std::size_t operator[](std::size_t i) const noexcept {
        if (!drawn_.empty()) return drawn_[i];
        if (!drawn_large_.empty()) return drawn_large_[i];
        const std::size_t position = (first_ + rank_ + i * num_replicas_) % dataset_size_;
        return options_.shuffle ? computed_[position] : position;
    }

    class Iterator;

    /// Returns an iterator to the first index of this rank in the current epoch. Valid until set_epoch()
    /// changes the epoch.
    [[nodiscard]] Iterator begin() const noexcept;

    /// Returns an iterator past the last index of this rank.
    [[nodiscard]] Iterator end() const noexcept;

    /// Returns the number of indices of the rank that has the most.
    [[nodiscard]] std::size_t largest_share() const noexcept;

    /// Returns the number of indices of the rank that has the fewest.
    [[nodiscard]] std::size_t smallest_share() const noexcept;

    /// Returns the number of indices of a given rank. Throws ArgumentError if `rank` is not in [0,
    /// num_replicas - 1].
    [[nodiscard]] std::size_t share(std::size_t rank) const;

  private:
    void set_replicas(std::size_t num_replicas, std::size_t rank);

    void check_arguments() const;

    void check_rank(std::size_t rank) const;

    /// Generates the order of the current epoch, from position `first` on.
    void begin_epoch(std::size_t first);

    /// Returns the number of samples that are not yet consumed.
    [[nodiscard]] std::size_t remaining() const noexcept { return dataset_size_ - first_; }

    /// Returns this rank's part of an order, in the order's own memory. Positions past the end, which occur
    /// only with Padding::repeat, wrap around to the start, as often as needed.
    template <class Index>
    [[nodiscard]] std::vector<Index> own_part(std::vector<Index> order) const {
        const std::size_t n = dataset_size_;
        const std::vector<Index> first(
            order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(n, num_replicas_)));
        order.resize(std::max(size_, n));
        for (std::size_t i = 0; i < size_; ++i) {
            const std::size_t position = first_ + rank_ + i * num_replicas_;
            order[i] = position < n ? order[position] : first[position % n];
        }
        order.resize(size_);
        return order;
    }

    std::size_t dataset_size_;
    std::size_t num_replicas_;
    std::size_t rank_;
    DistributedSamplerOptions options_;
    std::int64_t epoch_ = 0;
    std::size_t first_ = 0;  // the position in the epoch's order of the first sample that is not yet consumed
    std::size_t size_ = 0;
    bool epoch_is_set_ = false;
    mutable std::uint32_t passes_ = 0;  // accessed atomically
    // A random order is stored in one of the next three members. drawn_ and drawn_large_ contain only this
    // rank's part of the order.
    std::vector<std::uint32_t> drawn_;
    std::vector<std::size_t> drawn_large_;
    ComputedPermutation computed_{0, 0};
};

/// Computes this rank's indices from the sampler, and must not outlive the sampler.
class DistributedSampler::Iterator {
  public:
    using value_type = std::size_t;
    using reference = std::size_t;
    using pointer = void;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::random_access_iterator_tag;
    using iterator_category = std::input_iterator_tag;

    Iterator() = default;
    /// Makes an iterator to index number `place` of the rank; past the last index if `place` is size().
    Iterator(const DistributedSampler& sampler, std::size_t place) noexcept
        : sampler_(&sampler), place_(static_cast<std::ptrdiff_t>(place)) {}

    [[nodiscard]] std::size_t operator*() const noexcept {
        return (*sampler_)[static_cast<std::size_t>(place_)];
    }
    /// Returns the index that is `by` positions further.
    [[nodiscard]] std::size_t operator[](std::ptrdiff_t by) const noexcept { return *(*this + by); }

    Iterator& operator+=(std::ptrdiff_t by) noexcept {
        place_ += by;
        return *this;
    }
    Iterator& operator-=(std::ptrdiff_t by) noexcept { return *this += -by; }
    Iterator& operator++() noexcept { return *this += 1; }
    Iterator& operator--() noexcept { return *this -= 1; }
    Iterator operator++(int) noexcept {
        const Iterator before = *this;
        ++*this;
        return before;
    }
    Iterator operator--(int) noexcept {
        const Iterator before = *this;
        --*this;
        return before;
    }

    friend Iterator operator+(Iterator it, std::ptrdiff_t by) noexcept { return it += by; }
    friend Iterator operator+(std::ptrdiff_t by, Iterator it) noexcept { return it += by; }
    friend Iterator operator-(Iterator it, std::ptrdiff_t by) noexcept { return it -= by; }
    friend std::ptrdiff_t operator-(const Iterator& a, const Iterator& b) noexcept {
        return a.place_ - b.place_;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) noexcept { return a.place_ == b.place_; }
    friend auto operator<=>(const Iterator& a, const Iterator& b) noexcept { return a.place_ <=> b.place_; }

  private:
    const DistributedSampler* sampler_ = nullptr;
    std::ptrdiff_t place_ = 0;
};

inline DistributedSampler::Iterator DistributedSampler::begin() const noexcept {
    return {*this, 0};
}

inline DistributedSampler::Iterator DistributedSampler::end() const noexcept {
    return {*this, size_};
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/distributed_sampler.ipp"
#endif
