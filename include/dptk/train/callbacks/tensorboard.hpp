/// TensorBoard, a callback that writes the course of a run for TensorBoard.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/config.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/tensorboard_file.hpp"

namespace DPTK_NAMESPACE {

/// On rank 0, writes loss, learning rate and samples per second within epochs, and loss and accuracy of
/// training and test after each: the tags loss/train, loss/test, accuracy/train, accuracy/test, lr and
/// samples_per_second, by step. A run that continues repeats no step. All ranks throw if the file cannot be
/// written.
class TensorBoard : public Callback {
  public:
    /// `folder` is made if it does not exist.
    explicit TensorBoard(std::string folder) : folder_(std::move(folder)) {}

    void epoch_begin(TrainingRun& run) override {
        on_rank_0(run, [&](const TrainingStatus& status) {
            if (file_) return;
            file_.emplace(folder_);
            if (status.step > 0) file_->resume_at(status.step + 1);
        });
    }

    void train_summary(TrainingRun& run) override {
        on_rank_0(run, [&](const TrainingStatus& status) {
            file_->scalar("loss/train", status.training.loss, status.step);
            file_->scalar("lr", run.lr(), status.step);
            file_->scalar("samples_per_second", status.samples_per_second, status.step);
        });
    }

    void epoch_end(TrainingRun& run) override {
        on_rank_0(run, [&](const TrainingStatus& status) {
            file_->scalar("accuracy/train", status.training.accuracy, status.step);
            file_->scalar("loss/test", status.test.loss, status.step);
            file_->scalar("accuracy/test", status.test.accuracy, status.step);
        });
    }

  private:
    template <class Fn>
    void on_rank_0(TrainingRun& run, Fn&& fn) {
        on_all_or_none(run.group(), [&] {
            if (run.group().rank() == 0) fn(run.status());
        });
    }

    std::string folder_;
    std::optional<TensorBoardFile> file_;
};

}  // namespace DPTK_NAMESPACE
