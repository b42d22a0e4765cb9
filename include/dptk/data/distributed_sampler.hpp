/// DistributedSampler deals the indices of a dataset to ranks, equal index for index to
/// torch.utils.data.DistributedSampler with the same arguments, so that C++ and Python runs see the same
/// samples in the same order. `Padding::none` instead counts each sample exactly once, and `Order::computed`
/// takes no memory. Cutting a rank's indices into batches is left to BatchSampler, and it never communicates:
/// each rank computes its own share.
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/computed_permutation.hpp"
#include "dptk/data/dataset.hpp"

namespace DPTK_NAMESPACE {

/// What evens out the ranks' shares where the number of replicas does not divide the dataset.
enum class Padding {
    repeat,  ///< PyTorch's: indices from the start of the order are repeated, so that all shares are equal.
    none,    ///< Nothing: each index occurs once, and the first ranks may have one more than the others.
};

/// Where a random order comes from.
enum class Order {
    torch,     ///< PyTorch's, drawn at the beginning of an epoch: 4 bytes a sample, 8 from 2^32 samples on.
    computed,  ///< Another one, of which each index is computed when it is asked for, in no memory.
};

/// Equal on all ranks. PyTorch's names, where PyTorch has the option.
struct DistributedSamplerOptions {
    bool shuffle = true;     ///< A new random order each epoch; otherwise 0, 1, 2, ...
    std::uint64_t seed = 0;  ///< Must be equal on all ranks. Of seed + epoch, PyTorch counts the low 32 bits.
    bool drop_last = false;  ///< Drop the tail of the order instead of padding it.
    Padding padding = Padding::repeat;  ///< See Padding.
    Order order = Order::torch;         ///< See Order.
};

/// A group of replicas of which the caller is one, such as a ProcessGroup.
template <class Group>
concept ReplicaGroup = requires(const Group& group) {
    { group.rank() } -> std::same_as<int>;
    { group.size() } -> std::same_as<int>;
};

/// The indices of one rank in the current epoch, which is 0 at first: a random-access range of std::size_t.
/// Rank r of W has the positions r, r + W, r + 2W, ... of the epoch's order.
class DistributedSampler {
  public:
    /// Throws ArgumentError where `num_replicas` is 0, `rank` is not in [0, num_replicas - 1], or `drop_last`
    /// is asked for together with `Padding::none`.
    DistributedSampler(std::size_t dataset_size, std::size_t num_replicas, std::size_t rank,
                       DistributedSamplerOptions options = {});

    /// With the number of replicas and the rank of `group`, which is not kept.
    template <ReplicaGroup Group>
    DistributedSampler(std::size_t dataset_size, const Group& group, DistributedSamplerOptions options = {})
        : DistributedSampler(dataset_size, static_cast<std::size_t>(group.size()),
                             static_cast<std::size_t>(group.rank()), options) {}

    /// With the size of `dataset` as it is now; neither `dataset` nor `group` is kept.
    template <IndexableDataset Dataset, ReplicaGroup Group>
    DistributedSampler(const Dataset& dataset, const Group& group, DistributedSamplerOptions options = {})
        : DistributedSampler(static_cast<std::size_t>(dataset.size()), group, options) {}

    /// Makes `epoch`'s indices the current ones; to be called alike on all ranks. Invalidates iterators,
    /// except where `epoch` is the current one already: then nothing happens.
    void set_epoch(std::int64_t epoch);

    /// The epoch whose indices are current.
    [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }

    /// The number of samples that are dealt.
    [[nodiscard]] std::size_t dataset_size() const noexcept { return dataset_size_; }

    /// The number of ranks that they are dealt to.
    [[nodiscard]] std::size_t num_replicas() const noexcept { return num_replicas_; }

    /// The rank whose indices these are.
    [[nodiscard]] std::size_t rank() const noexcept { return rank_; }

    /// The number of indices of this rank, the same in every epoch.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// The index at a place below size().
    [[nodiscard]] std::size_t operator[](std::size_t i) const noexcept {
        if (!drawn_.empty()) return drawn_[i];
        if (!drawn_large_.empty()) return drawn_large_[i];
        const std::size_t position = (rank_ + i * num_replicas_) % dataset_size_;
        return options_.shuffle ? computed_[position] : position;
    }

    class Iterator;

    /// At the first index of this rank in the current epoch. Valid until set_epoch() changes that.
    [[nodiscard]] Iterator begin() const noexcept;

    /// Behind the last index of this rank.
    [[nodiscard]] Iterator end() const noexcept;

    /// The number of indices of the rank that has the most.
    [[nodiscard]] std::size_t largest_share() const noexcept;

    /// The number of indices of the rank that has the fewest.
    [[nodiscard]] std::size_t smallest_share() const noexcept;

    /// The number of indices of any rank. Throws ArgumentError where `rank` is not in [0, num_replicas - 1].
    [[nodiscard]] std::size_t share(std::size_t rank) const;

  private:
    void check_arguments() const;

    void check_rank(std::size_t rank) const;

    /// Of the current epoch.
    void make_order();

    /// This rank's part of an order, in the order's own memory. Positions beyond the end, which only
    /// Padding::repeat asks for, start again at 0, as often as it takes.
    template <class Index>
    [[nodiscard]] std::vector<Index> deal(std::vector<Index> order) const {
        const std::size_t n = dataset_size_;
        const std::vector<Index> first(
            order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(n, num_replicas_)));
        order.resize(std::max(size_, n));
        for (std::size_t i = 0; i < size_; ++i) {
            const std::size_t position = rank_ + i * num_replicas_;
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
    std::size_t size_ = 0;
    // One of these has the epoch's order, where that is random; the drawn ones this rank's part of it.
    std::vector<std::uint32_t> drawn_;
    std::vector<std::size_t> drawn_large_;
    ComputedPermutation computed_{0, 0};
};

/// Computes its indices from the sampler, which it must not outlive.
class DistributedSampler::Iterator {
  public:
    using value_type = std::size_t;
    using reference = std::size_t;
    using pointer = void;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::random_access_iterator_tag;
    using iterator_category = std::input_iterator_tag;

    Iterator() = default;
    /// At the index in this place of the rank's, or behind the last one.
    Iterator(const DistributedSampler& sampler, std::size_t place) noexcept
        : sampler_(&sampler), place_(static_cast<std::ptrdiff_t>(place)) {}

    [[nodiscard]] std::size_t operator*() const noexcept {
        return (*sampler_)[static_cast<std::size_t>(place_)];
    }
    /// The index that lies `by` places on.
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
