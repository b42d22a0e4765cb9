/// TensorBoard, a callback that writes the course of a run for TensorBoard.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/ddp/statistics.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/callbacks/misclassified.hpp"
#include "dptk/train/tensorboard_file.hpp"

namespace DPTK_NAMESPACE {

/// Options of TensorBoard.
struct TensorBoardOptions {
    /// Its samples are written after each epoch: the images misclassified/01, misclassified/02, ..., and the
    /// text `misclassified` with labels and predicted classes, if their names are UTF-8. A callback of the
    /// same trainer, or null.
    const Misclassified* misclassified = nullptr;
};

/// On rank 0, writes loss, learning rate and samples per second within epochs, and loss and accuracy of
/// training and test after each: the tags loss/train, loss/test, accuracy/train, accuracy/test, lr and
/// samples_per_second, by step; without accuracy if the model reports none. For models in host memory also
/// gradient_norm, unless the optimizer is sharded, and waiting_share: the fraction of rank 0's time since the
/// last summary in which it sent gradients or waited for other ranks, and did not compute. A run that
/// continues repeats no step. All ranks throw if the file cannot be written.
class TensorBoard : public Callback {
  public:
    /// `folder` is made if it does not exist.
    explicit TensorBoard(std::string folder, TensorBoardOptions options = {})
        : folder_(std::move(folder)), options_(options) {}

    void train_begin(TrainingRun& run) override {
        file_.reset();
        if (run.status().changes > 0) times_ = {};  // the sums begin at 0 again
        told_ = run.status().step;
        awaits_epoch_end_ = false;
    }

    void epoch_begin(TrainingRun& run) override {
        on_rank_0(run, [](const TrainingStatus&) {});  // opens the file
    }

    void train_summary(TrainingRun& run) override {
        const TrainingStatus& status = run.status();
        const std::optional<double> norm = run.gradient_norm();
        const std::optional<StepTimes> times = run.step_times();
        summary_ = {status.training.loss, run.lr(), status.samples_per_second, norm.value_or(none),
                    times ? waiting_share(*times) : none};
        on_rank_0(run, [&](const TrainingStatus&) { write_summary(status.step); });
        told_ = status.step;
        awaits_epoch_end_ = status.batch == status.batches;
    }

    void epoch_end(TrainingRun& run) override {
        on_rank_0(run, [&](const TrainingStatus& status) {
            const auto write_accuracy = [&](const char* tag, double accuracy) {
                if (!std::isnan(accuracy)) file_->scalar(tag, accuracy, status.step);
            };
            write_accuracy("accuracy/train", status.training.accuracy);
            file_->scalar("loss/test", status.test.loss, status.step);
            write_accuracy("accuracy/test", status.test.accuracy);
            if (options_.misclassified != nullptr) write(*options_.misclassified, status.step);
        });
        awaits_epoch_end_ = false;
    }

    void save(TrainingRun& run, TrainingState& state) override {
        state.values["tensorboard.told"] = detail::text(told_);
        if (!run.group().is_elastic()) return;
        state.values["tensorboard.awaits_epoch_end"] = awaits_epoch_end_ ? "1" : "0";
        state.training.push_back(
            StateTensor::of<double>("tensorboard.summary", {summary_.size()}, std::span(summary_)));
    }

    void restore(TrainingRun& run, const TrainingState& state) override {
        const bool is_known = state.values.contains("tensorboard.told");  // not in older checkpoints
        told_ = is_known ? state.number("tensorboard.told") : run.status().step;
        awaits_epoch_end_ = false;
        if (run.status().changes == 0) return;
        awaits_epoch_end_ = state.number("tensorboard.awaits_epoch_end") != 0;
        const auto values = TrainingState::required(state.training, "tensorboard.summary").values<double>();
        std::copy_n(values.begin(), summary_.size(), summary_.begin());
    }

  private:
    template <class Fn>
    void on_rank_0(TrainingRun& run, Fn&& fn) {
        on_all_or_none(run.group(), [&] {
            if (run.group().rank() != 0) return;
            if (!file_) open(run.status());
            fn(run.status());
        });
    }

    /// Begins a file, and declares invalid what will be written again. At step 0, too: a run may have been
    /// killed before its first checkpoint.
    void open(const TrainingStatus& status) {
        file_.emplace(folder_);
        const std::int64_t told = std::min(told_, status.step);
        file_->resume_at(awaits_epoch_end_ ? told : told + 1);
        if (awaits_epoch_end_) write_summary(told);  // a change has interrupted epoch_end, at the same step
    }

    void write_summary(std::int64_t step) {
        constexpr const char* tags[] = {"loss/train", "lr", "samples_per_second", "gradient_norm",
                                        "waiting_share"};
        for (std::size_t i = 0; i < summary_.size(); ++i)
            if (i < 3 || !std::isnan(summary_[i])) file_->scalar(tags[i], summary_[i], step);
    }

    /// Returns the share since the last call; `times` are sums.
    [[nodiscard]] double waiting_share(const StepTimes& times) {
        const double compute = times.compute - times_.compute;
        const double waiting =
            times.communication - times.overlapped - (times_.communication - times_.overlapped);
        times_ = times;
        return waiting > 0 ? waiting / (compute + waiting) : 0;
    }

    void write(const Misclassified& misclassified, std::int64_t step) {
        const std::vector<MisclassifiedSample>& samples = misclassified.samples();
        for (std::size_t i = 0; i < samples.size(); ++i) {
            const std::string tag = detail::text("misclassified/", i < 9 ? "0" : "", i + 1);
            if (!samples[i].image.pixels.empty()) file_->image(tag, samples[i].image, step);
        }
        const std::string table = misclassified.text();
        if (detail::is_utf8(table)) file_->text("misclassified", table, step);
    }

    std::string folder_;
    TensorBoardOptions options_;
    std::optional<TensorBoardFile> file_;
    std::int64_t told_ = 0;  // the last step that was written
    bool awaits_epoch_end_ =
        false;  // whether this was the last one of an epoch, and epoch_end is not written
    static constexpr double none = std::numeric_limits<double>::quiet_NaN();
    /// The last summary; none: not known.
    std::array<double, 5> summary_ = {none, none, none, none, none};
    StepTimes times_;  // at the last summary
};

}  // namespace DPTK_NAMESPACE
