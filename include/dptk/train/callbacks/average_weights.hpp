/// AverageWeights, a callback that evaluates a moving average of the parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"
#include "dptk/optim/ema.hpp"
#include "dptk/train/callback.hpp"

namespace DPTK_NAMESPACE {

/// Keeps an exponential moving average of the parameters of a network in host memory, which takes the place
/// of the parameters in evaluations. Checkpoints contain it as `ema.` followed by the parameter's name. The
/// network's elements must be of type T. Buffers are not averaged.
template <std::floating_point T = float>
class AverageWeights : public Callback {
  public:
    /// Throws ArgumentError if the decay is not in [0, 1].
    explicit AverageWeights(EMAOptions options = {}) : average_(options) {}

    void train_begin(TrainingRun& run) override {
        if (run.status().step == 0) average_.set_state({});
    }

    void step(TrainingRun& run) override { average_.update(run.parameters()); }

    void test_begin(TrainingRun& run) override { exchange(run); }

    void test_end(TrainingRun& run) override { exchange(run); }

    void save(TrainingRun& run, TrainingState& state) override {
        for (std::size_t i = 0; i < average_.state().size(); ++i)
            state.training.push_back(run.to_row_major(i, name_of(run, i), average_.state()[i].data()));
    }

    void restore(TrainingRun& run, const TrainingState& state) override {
        average_.set_state({});
        std::vector<std::vector<T>> averages;
        for (std::size_t i = 0; i < run.parameters().size(); ++i) {
            const StateTensor* const tensor = TrainingState::find(state.training, name_of(run, i));
            if (tensor == nullptr) return;
            averages.emplace_back(run.parameters()[i].count);
            run.from_row_major(i, *tensor, averages.back().data());
        }
        average_.set_state(std::move(averages));
    }

  private:
    [[nodiscard]] static std::string name_of(TrainingRun& run, std::size_t i) {
        return "ema." + run.parameters()[i].name;
    }

    void exchange(TrainingRun& run) {
        if (!average_.state().empty()) average_.exchange(run.parameters());
    }

    EMA<T> average_;
};

}  // namespace DPTK_NAMESPACE
