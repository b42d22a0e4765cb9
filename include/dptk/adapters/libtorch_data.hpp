/// DistributedSampler for libtorch's data loaders, with the indices of Python's DistributedSampler, which
/// differ from those of libtorch's DistributedRandomSampler.
#pragma once

#if !__has_include(<torch/data.h>)
#error \
    "dptk/adapters/libtorch_data.hpp needs libtorch: its folders include and include/torch/csrc/api/include"
#endif

#include <torch/data.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/distributed_sampler.hpp"

namespace DPTK_NAMESPACE::libtorch {

/// A sampler for torch::data::make_data_loader, which copies it: all copies share one state, so that
/// set_epoch() also affects the loader's copy. Each begin() of the loader restarts the epoch. Never
/// communicates.
class DistributedSampler : public torch::data::samplers::Sampler<> {
  public:
    /// Throws the exceptions of dptk::DistributedSampler's constructor.
    template <ReplicaGroup Group>
    DistributedSampler(std::size_t dataset_size, const Group& group, DistributedSamplerOptions options = {})
        : state_(std::make_shared<State>(State{dptk::DistributedSampler(dataset_size, group, options)})) {}

    /// Selects the epoch. Call it before the loader's begin(), with the same value on all ranks.
    void set_epoch(std::int64_t epoch) { state_->indices.set_epoch(epoch); }

    /// Returns the number of indices of this rank, which is the same in every epoch.
    [[nodiscard]] std::size_t size() const noexcept { return state_->indices.size(); }

    /// Restarts the epoch. Throws ArgumentError if the size differs from the dataset's size at
    /// construction.
    void reset(torch::optional<std::size_t> new_size = {}) override {
        if (new_size.has_value() && *new_size != state_->indices.dataset_size())
            throw ArgumentError(detail::text("DistributedSampler: the dataset had ",
                                             state_->indices.dataset_size(),
                                             " samples at construction, and has ", *new_size, " now"));
        state_->next = 0;
    }

    /// Returns the next indices of this rank, at most `batch_size`; none at the end of the epoch.
    torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override {
        const std::size_t count = std::min(batch_size, size() - state_->next);
        if (count == 0) return {};
        std::vector<std::size_t> batch(count);
        for (std::size_t& index : batch) index = state_->indices[state_->next++];
        return batch;
    }

    /// Saves the epoch and the position in it.
    void save(torch::serialize::OutputArchive& archive) const override {
        archive.write("epoch", torch::tensor(state_->indices.epoch(), torch::kInt64), true);
        archive.write("next", torch::tensor(static_cast<std::int64_t>(state_->next), torch::kInt64), true);
    }

    /// Restores the position that save() wrote, with the same dataset, options and rank. The loader's
    /// begin() still restarts the epoch. Throws ArgumentError if the saved position exceeds this rank's
    /// number of indices, and libtorch's exception if the archive has no such state.
    void load(torch::serialize::InputArchive& archive) override {
        const auto read = [&](const char* key) {
            torch::Tensor value = torch::empty(1, torch::kInt64);
            archive.read(key, value, true);
            return value.item<std::int64_t>();
        };
        const std::int64_t epoch = read("epoch");
        const std::int64_t next = read("next");
        if (next < 0 || static_cast<std::size_t>(next) > size())
            throw ArgumentError(detail::text("DistributedSampler: expected a saved position of at most ",
                                             size(), " indices, got ", next));
        set_epoch(epoch);
        state_->next = static_cast<std::size_t>(next);
    }

  private:
    struct State {
        dptk::DistributedSampler indices;
        std::size_t next = 0;
    };

    std::shared_ptr<State> state_;
};

}  // namespace DPTK_NAMESPACE::libtorch
