/// LearningRate, a callback that sets the learning rate by a schedule.
#pragma once

#include <concepts>
#include <functional>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/optim/schedule.hpp"
#include "dptk/train/callback.hpp"

namespace DPTK_NAMESPACE {

/// Multiplies the learning rate of the Trainer's options by a schedule, before each step.
class LearningRate : public Callback {
  public:
    /// `schedule(epochs)` or `schedule(epochs, step)` returns the factor, such as CosineSchedule or a lambda.
    /// `epochs` is the number of epochs before the step, with fractions, and `step` how much of an epoch a
    /// step is. If `by_epoch`, all steps of an epoch have the same rate, `epochs` is an integer, and
    /// `step` 1.
    template <class Schedule>
        requires std::invocable<Schedule&, double> || std::invocable<Schedule&, double, double>
    explicit LearningRate(Schedule schedule, bool by_epoch = false)
        : schedule_([schedule = std::move(schedule)](double epochs, [[maybe_unused]] double step) mutable {
              if constexpr (std::invocable<Schedule&, double, double>) {
                  return schedule(epochs, step);
              } else {
                  return schedule(epochs);
              }
          }),
          by_epoch_(by_epoch) {}

    void batch_begin(TrainingRun& run) override {
        const TrainingStatus& status = run.status();
        const double factor =
            by_epoch_ ? schedule_(status.epoch, 1)
                      : schedule_(status.epochs_done(), 1.0 / static_cast<double>(status.batches));
        run.set_lr(run.initial_lr() * factor);
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
    std::function<double(double epochs, double step)> schedule_;
    bool by_epoch_;
};

}  // namespace DPTK_NAMESPACE
