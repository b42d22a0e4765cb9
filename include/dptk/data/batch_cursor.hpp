/// BatchCursor: this rank's batches of several epochs one after the other, for training loops that continue
/// where another run, or another group of ranks, has stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/batch_sampler.hpp"
#include "dptk/data/distributed_sampler.hpp"

namespace DPTK_NAMESPACE {

/// A position in the batches of a DistributedSampler. All ranks have the same number of batches; see
/// BatchSampler. Use Padding::none if each sample must be used once. Does not communicate.
class BatchCursor {
  public:
    /// Begins at the sampler's current epoch and position, and ends before epoch `epochs`. `batch_size` is
    /// the number of samples of each rank. The sampler must outlive this object. Throws ArgumentError if
    /// `batch_size` is 0.
    BatchCursor(DistributedSampler& sampler, std::size_t batch_size, std::int64_t epochs,
                BatchSamplerOptions options = {})
        : sampler_(sampler), batches_(sampler, batch_size, options), epochs_(epochs) {
        read();
    }

    /// Returns whether all batches of all epochs have been used.
    [[nodiscard]] bool done() const noexcept { return sampler_.epoch() >= epochs_; }

    /// Returns the epoch of the current batch.
    [[nodiscard]] std::int64_t epoch() const noexcept { return sampler_.epoch(); }

    /// Returns the number of the current batch in its epoch; after restore(), since restore().
    [[nodiscard]] std::size_t index() const noexcept { return index_; }

    /// Returns the dataset indices of this rank's current batch, which may be none at the end of an epoch.
    /// Valid until the next advance() or restore().
    [[nodiscard]] std::span<const std::size_t> batch() const noexcept { return batch_; }

    /// Goes to the next batch: after the last batch of an epoch, to the first one of the next epoch.
    void advance() {
        if (done()) throw ArgumentError("BatchCursor: advance() after the last batch");
        if (++index_ >= batches_.size()) begin_epoch(sampler_.epoch() + 1);
        read();
    }

    /// Returns the position before the current batch.
    [[nodiscard]] SamplerState state() const { return sampler_.state(index_ * batches_.batch_size()); }

    /// Continues at this position, as this rank of the group. Throws as DistributedSampler::restore() does.
    template <ReplicaGroup Group>
    void restore(const SamplerState& state, const Group& group) {
        sampler_.restore(state, group);
        index_ = 0;
        if (batches_.size() == 0 && !done()) begin_epoch(sampler_.epoch() + 1);
        read();
    }

  private:
    void begin_epoch(std::int64_t epoch) {
        sampler_.set_epoch(epoch);
        index_ = 0;
    }

    void read() {
        batch_.clear();
        if (!done() && index_ < batches_.size()) batches_.read(index_, batch_);
    }

    DistributedSampler& sampler_;
    BatchSampler<DistributedSampler> batches_;
    std::int64_t epochs_;
    std::size_t index_ = 0;
    std::vector<std::size_t> batch_;
};

}  // namespace DPTK_NAMESPACE
