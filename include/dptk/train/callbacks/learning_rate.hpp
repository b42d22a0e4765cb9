/// LearningRate, a callback that sets the learning rate by a schedule.
#pragma once

#include <functional>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/optim/schedule.hpp"
#include "dptk/train/callback.hpp"

namespace DPTK_NAMESPACE {

/// Multiplies the learning rate of the Trainer's options by a schedule, before each step.
class LearningRate : public Callback {
  public:
    /// `schedule` returns the factor for a number of epochs, such as CosineSchedule or a lambda. Epochs have
    /// fractions, unless `by_epoch`: then all steps of an epoch have the same rate.
    explicit LearningRate(std::function<double(double)> schedule, bool by_epoch = false)
        : schedule_(std::move(schedule)), by_epoch_(by_epoch) {}

    void batch_begin(TrainingRun& run) override {
        const double epochs = by_epoch_ ? run.status().epoch : run.status().epochs_done();
        run.set_lr(run.initial_lr() * schedule_(epochs));
    }

    // The rate is a function of the epochs done. What is saved is only shown until the next step.
    void save(TrainingRun& run, TrainingState& state) override {
        const double rate[] = {run.lr()};
        state.training.push_back(StateTensor::of<double>("learning_rate.last", {1}, rate));
    }

    void restore(TrainingRun& run, const TrainingState& state) override {
        if (const StateTensor* last = TrainingState::find(state.training, "learning_rate.last"))
            run.set_lr(last->values<double>().at(0));
    }

  private:
    std::function<double(double)> schedule_;
    bool by_epoch_;
};

}  // namespace DPTK_NAMESPACE
