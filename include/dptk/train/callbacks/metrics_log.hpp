/// MetricsLog, a callback that writes the results of each epoch to a file.
#pragma once

#include <string>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/train/callback.hpp"

namespace DPTK_NAMESPACE {

/// On rank 0, appends a line for each epoch: epoch (from 1), step, learning rate, training and test loss and
/// accuracy, and samples per second. A path that ends in `.csv` gets a table with a header, any other path a
/// JSON object in each line, with null for a number that is not finite. A run that continues drops the lines
/// of the epochs that it repeats; a new run drops all lines. Throws BackendError on all ranks if the file
/// cannot be written.
class MetricsLog : public Callback {
  public:
    /// Makes the callback. The file's folder must exist when the first epoch ends.
    explicit MetricsLog(std::string path) : path_(std::move(path)) {}

    void train_begin(TrainingRun& /*run*/) override { is_begun_ = false; }
    DPTK_INLINE void epoch_end(TrainingRun& run) override;

  private:
    void write(const TrainingRun& run);

    std::string path_;
    bool is_begun_ = false;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/callbacks/metrics_log.ipp"
#endif
