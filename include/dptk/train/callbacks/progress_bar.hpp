/// ProgressBar, a callback that shows the progress of a run on the terminal.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/number_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/progress.hpp"

namespace DPTK_NAMESPACE {

/// On rank 0, writes to stdout the progress within an epoch, and a line after each epoch, which also goes to
/// a log if there is one.
class ProgressBar : public Callback {
  public:
    /// Makes the callback. For `log`, see ProgressPrinter; other ranks than 0 do not use it.
    explicit ProgressBar(ProgressStyle style = ProgressStyle::bar, std::string log = {})
        : printer_(style, std::move(log)) {}

    void train_summary(TrainingRun& run) override {
        if (run.group().rank() != 0) return;
        const TrainingStatus& status = run.status();
        const double samples_per_batch = static_cast<double>(status.training.samples) /
                                         static_cast<double>(std::max<std::size_t>(status.batch, 1));
        const double batches_left = static_cast<double>(status.batches) * (status.epochs - status.epoch) -
                                    static_cast<double>(status.batch);
        printer_.update({.epoch = status.epoch + 1,
                         .epochs = status.epochs,
                         .batch = status.batch,
                         .batches = status.batches,
                         .loss = status.training.loss,
                         .samples_per_second = status.samples_per_second,
                         .seconds_left = batches_left * samples_per_batch / status.samples_per_second});
    }

    void train_begin(TrainingRun& run) override {
        if (run.status().changes == 0) told_epochs_ = 0;
    }

    void epoch_end(TrainingRun& run) override {
        const TrainingStatus& status = run.status();
        if (run.group().rank() != 0 || status.epoch < told_epochs_) return;
        told_epochs_ = status.epoch + 1;
        const bool has_accuracy = !std::isnan(status.test.accuracy);
        printer_.line(detail::text("epoch ", status.epoch + 1, '/', status.epochs, ": loss ",
                                   detail::fixed_text(status.training.loss, 6),
                                   has_accuracy ? ", test accuracy " : ", test loss ",
                                   has_accuracy ? detail::fixed_text(status.test.accuracy, 4)
                                                : detail::fixed_text(status.test.loss, 6),
                                   ", ", detail::fixed_text(status.samples_per_second, 0), " samples/s"));
    }

    void train_end(TrainingRun& run) override {
        if (run.group().rank() == 0 && !run.status().stop_reason.empty())
            printer_.line("training ended early: " + run.status().stop_reason);
    }

  private:
    ProgressPrinter printer_;
    int told_epochs_ = 0;
};

}  // namespace DPTK_NAMESPACE
