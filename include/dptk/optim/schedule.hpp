/// Schedules of the learning rate: factors of an optimizer's first rate, as functions of the step or the
/// epoch.
#pragma once

#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

// All schedules count from 0, in steps or in epochs, which may have fractions; all lengths have the same
// unit. `step` is by how much x grows from one step to the next. With `warmup`, the factor is multiplied by
// min(1, (x + step) / warmup), so that no step has the rate 0, and the last step of the warm-up has the whole
// rate (after Goyal et al. 2017). The warm-up is part of the whole length, and shifts nothing.
//
//     dptk::CosineSchedule schedule({.total = epochs, .final_factor = 0.01, .warmup = 5});
//     for (int epoch = 0; epoch < epochs; ++epoch) {
//         optimizer.set_lr(first_rate * schedule(epoch));

/// Options of a schedule that does not change the rate after the warm-up.
struct ConstantScheduleOptions {
    double warmup = 0;  ///< The length of the warm-up.
};

/// The same rate throughout.
class ConstantSchedule {
  public:
    /// Throws ArgumentError if the warm-up is negative.
    explicit ConstantSchedule(ConstantScheduleOptions options = {});

    /// Returns the factor at `x`.
    [[nodiscard]] double operator()(double x, double step = 1) const noexcept;

  private:
    ConstantScheduleOptions options_;
};

/// Options of MultiStepSchedule.
struct MultiStepScheduleOptions {
    std::vector<double> milestones;  ///< Where the rate falls, in ascending order.
    double gamma = 0.1;              ///< The factor at each milestone.
    double warmup = 0;               ///< The length of the warm-up.
};

/// gamma to the power of the number of milestones <= x, as PyTorch's MultiStepLR.
class MultiStepSchedule {
  public:
    /// Throws ArgumentError if the milestones do not ascend, or a number is negative.
    explicit MultiStepSchedule(MultiStepScheduleOptions options);

    /// Returns the factor at `x`.
    [[nodiscard]] double operator()(double x, double step = 1) const noexcept;

  private:
    MultiStepScheduleOptions options_;
};

/// Options of CosineSchedule.
struct CosineScheduleOptions {
    double total;             ///< The length of the whole training.
    double final_factor = 0;  ///< The factor at its end.
    double warmup = 0;        ///< The length of the warm-up.
};

/// Half a period of a cosine, from 1 to final_factor: (1 + cos(π x / total)) / 2 · (1 - final_factor) +
/// final_factor, as PyTorch's CosineAnnealingLR (Loshchilov and Hutter 2017) until its first minimum.
/// Constant afterwards.
class CosineSchedule {
  public:
    /// Throws ArgumentError if `total` is not above 0, or a number is negative.
    explicit CosineSchedule(CosineScheduleOptions options);

    /// Returns the factor at `x`.
    [[nodiscard]] double operator()(double x, double step = 1) const noexcept;

  private:
    CosineScheduleOptions options_;
};

/// Options of LinearSchedule.
struct LinearScheduleOptions {
    double total;             ///< Where the final factor is reached.
    double first_factor = 1;  ///< The factor at 0.
    double final_factor = 0;  ///< The factor at `total`, and afterwards.
    double warmup = 0;        ///< The length of the warm-up.
};

/// A straight line, by the formula of PyTorch's LinearLR, with other defaults.
class LinearSchedule {
  public:
    /// Throws ArgumentError if `total` is not above 0, or a number is negative.
    explicit LinearSchedule(LinearScheduleOptions options);

    /// Returns the factor at `x`.
    [[nodiscard]] double operator()(double x, double step = 1) const noexcept;

  private:
    LinearScheduleOptions options_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/optim/schedule.ipp"
#endif
