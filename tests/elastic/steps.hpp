/// The steps of the model: with an SGD on all ranks (ReplicatedSteps), or with a part of one on each rank
/// (ShardedSteps).
#pragma once

#include <dptk/comm/process_group.hpp>
#include <dptk/data/batch_cursor.hpp>
#include <dptk/ddp.hpp>
#include <dptk/ddp/elastic_state.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/adam.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "elastic/model.hpp"

namespace elastic {

class ReplicatedSteps {
  public:
    ReplicatedSteps(dptk::ProcessGroup& group, Model& model) : ddp_(group, model.values, model.gradients) {}

    [[nodiscard]] dptk::ElasticState elastic_state(dptk::ProcessGroup& group, dptk::BatchCursor& cursor) {
        return {group, ddp_, sgd_, cursor};
    }
    void synchronize(std::size_t samples) { ddp_.synchronize(samples); }
    void step() { sgd_.step(ddp_.parameters()); }
    [[nodiscard]] std::vector<dptk::OptimizerState<float>> state() { return {sgd_.state(0)}; }
    void load_state(const std::vector<dptk::OptimizerState<float>>& state) { sgd_.set_state(0, state.at(0)); }

  private:
    dptk::SGD<float> sgd_{{.lr = 0.05, .momentum = 0.9}};
    dptk::DistributedDataParallel ddp_;
};

/// The model has three parameters of different sizes, the last of which has a weight decay of its own.
class ShardedSteps {
  public:
    ShardedSteps(dptk::ProcessGroup& group, Model& model)
        : values_(parts(model.values)),
          gradients_(parts(model.gradients)),
          sharded_(group, values_, gradients_, dptk::AdamW<float>({.lr = 0.01})) {
        sharded_.set_group(std::array<std::size_t, 1>{2}, {.lr_factor = 0.5, .weight_decay = 0.2});
    }

    [[nodiscard]] dptk::ElasticState elastic_state(dptk::ProcessGroup& group, dptk::BatchCursor& cursor) {
        return {group, sharded_, cursor};
    }
    void synchronize(std::size_t samples) { sharded_.synchronize(samples); }
    /// Also changes values after the optimizer's step.
    void step() {
        sharded_.step();
        for (const std::span<float> values : values_)
            for (float& value : values) value = std::min(value, 0.6F);
    }
    [[nodiscard]] std::vector<dptk::OptimizerState<float>> state() { return sharded_.state(); }
    void load_state(const std::vector<dptk::OptimizerState<float>>& state) { sharded_.load_state(state); }

  private:
    [[nodiscard]] static std::vector<std::span<float>> parts(std::vector<float>& all) {
        const std::span<float> elements = all;
        return {elements.first(100), elements.subspan(100, 7), elements.subspan(107)};
    }

    std::vector<std::span<float>> values_, gradients_;
    dptk::ShardedOptimizer<dptk::AdamW<float>> sharded_;
};

}  // namespace elastic
