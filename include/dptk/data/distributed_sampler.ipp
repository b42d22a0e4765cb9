#pragma once

#include "dptk/data/distributed_sampler.hpp"

#include <limits>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/random_permutation.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE DistributedSampler::DistributedSampler(std::size_t dataset_size, std::size_t num_replicas,
                                                   std::size_t rank, DistributedSamplerOptions options)
    : dataset_size_(dataset_size), num_replicas_(num_replicas), rank_(rank), options_(options) {
    check_arguments();
    size_ = share(rank_);
    make_order();
}

DPTK_INLINE void DistributedSampler::set_epoch(std::int64_t epoch) {
    if (epoch == epoch_) return;
    epoch_ = epoch;
    make_order();
}

DPTK_INLINE std::size_t DistributedSampler::largest_share() const noexcept {
    const bool is_even = dataset_size_ % num_replicas_ == 0;
    return dataset_size_ / num_replicas_ + (is_even || options_.drop_last ? 0 : 1);
}

DPTK_INLINE std::size_t DistributedSampler::smallest_share() const noexcept {
    return options_.padding == Padding::none ? dataset_size_ / num_replicas_ : largest_share();
}

DPTK_INLINE std::size_t DistributedSampler::share(std::size_t rank) const {
    check_rank(rank);
    return rank < dataset_size_ % num_replicas_ ? largest_share() : smallest_share();
}

DPTK_INLINE void DistributedSampler::check_arguments() const {
    constexpr auto most_replicas = std::numeric_limits<std::ptrdiff_t>::max();
    // The messages show values as signed: a huge value is a negative int that the caller passed.
    if (num_replicas_ == 0 || num_replicas_ > static_cast<std::size_t>(most_replicas)) {
        throw ArgumentError(detail::text("DistributedSampler: num_replicas must be in [1, ", most_replicas,
                                         "], found ", static_cast<std::ptrdiff_t>(num_replicas_)));
    }
    check_rank(rank_);
    if (options_.drop_last && options_.padding == Padding::none) {
        throw ArgumentError(
            "DistributedSampler: drop_last leaves samples out and Padding::none counts each once; "
            "expected at most one of these options, found both");
    }
}

DPTK_INLINE void DistributedSampler::check_rank(std::size_t rank) const {
    if (rank < num_replicas_) return;
    throw ArgumentError(detail::text("DistributedSampler: rank must be in [0, ", num_replicas_ - 1,
                                     "], found ", static_cast<std::ptrdiff_t>(rank)));
}

DPTK_INLINE void DistributedSampler::make_order() {
    if (!options_.shuffle) return;
    const std::uint64_t seed = options_.seed + static_cast<std::uint64_t>(epoch_);
    if (options_.order == Order::computed) {
        computed_ = ComputedPermutation(dataset_size_, seed);
    } else if (dataset_size_ <= std::numeric_limits<std::uint32_t>::max()) {
        drawn_ = own_part(random_permutation<std::uint32_t>(dataset_size_, seed));
    } else {
        drawn_large_ = own_part(random_permutation<std::size_t>(dataset_size_, seed));
    }
}

}  // namespace DPTK_NAMESPACE
