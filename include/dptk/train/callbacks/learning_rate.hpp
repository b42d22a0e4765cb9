/// LearningRate, a callback that sets the learning rate by a schedule.
#pragma once

#include <functional>

#include "dptk/core/config.hpp"
#include "dptk/optim/schedule.hpp"
#include "dptk/train/callback.hpp"

namespace DPTK_NAMESPACE {

/// Multiplies the learning rate of the Trainer's options by a schedule, before each step. It is a function of
/// the epochs done: a run that continues needs no state.
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

  private:
    std::function<double(double)> schedule_;
    bool by_epoch_;
};

}  // namespace DPTK_NAMESPACE
