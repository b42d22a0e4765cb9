/// ShardBatches, the batches of a rank that trains one or several shards of a dataset.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/data/batch_sampler.hpp"
#include "dptk/data/distributed_sampler.hpp"

namespace DPTK_NAMESPACE::detail {

/// A sampler of batches for DataLoader. In each step, the batches of all shards follow each other, each of
/// them in a number of micro-batches.
class ShardBatches {
  public:
    /// At least one sampler, one for each shard, all of the same epoch. A step has `micro_batches` times
    /// `batch_size` samples of each shard.
    ShardBatches(std::vector<DistributedSampler> shards, std::size_t batch_size,
                 std::size_t micro_batches = 1)
        : shards_(std::move(shards)), batch_size_(batch_size), micro_batches_(micro_batches) {
        for (const DistributedSampler& shard : shards_)
            batches_.emplace_back(shard, batch_size * micro_batches);
    }
    ShardBatches(const ShardBatches&) = delete;
    ShardBatches& operator=(const ShardBatches&) = delete;

    [[nodiscard]] std::size_t shards() const noexcept { return shards_.size(); }

    /// The number of steps, which is equal on all ranks.
    [[nodiscard]] std::size_t steps() const noexcept { return batches_.front().size(); }

    /// The number of micro-batches.
    [[nodiscard]] std::size_t size() const noexcept { return steps() * shards() * micro_batches_; }

    /// The indices of micro-batch `index`, which may be empty.
    [[nodiscard]] std::vector<std::size_t> operator[](std::size_t index) const {
        std::vector<std::size_t> indices;
        read(index, indices);
        return indices;
    }

    /// Writes the indices of micro-batch `index` to `indices`, whose memory is reused.
    void read(std::size_t index, std::vector<std::size_t>& indices) const {
        const std::size_t batch = index / micro_batches_;
        batches_[batch % shards()].read(batch / shards(), indices);
        const std::size_t first = std::min(index % micro_batches_ * batch_size_, indices.size());
        indices.erase(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(first));
        if (indices.size() > batch_size_) indices.resize(batch_size_);
    }

    /// Whether all ranks have full batches in a step.
    [[nodiscard]] bool is_full_everywhere(std::size_t step) const {
        return batches_.front().is_full_everywhere(step);
    }

    // The random numbers of the samples' transforms depend on these.
    [[nodiscard]] const DistributedSamplerOptions& options() const noexcept {
        return shards_.front().options();
    }
    [[nodiscard]] std::int64_t epoch() const noexcept { return shards_.front().epoch(); }

  private:
    std::vector<DistributedSampler> shards_;
    std::size_t batch_size_;
    std::size_t micro_batches_;
    std::vector<BatchSampler<DistributedSampler>> batches_;
};

}  // namespace DPTK_NAMESPACE::detail
