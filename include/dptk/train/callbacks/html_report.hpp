/// HtmlReport, a callback that writes a page about a run: curves, results by class, and images of samples
/// that were misclassified.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/ddp/statistics.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/callbacks/class_report.hpp"
#include "dptk/train/callbacks/misclassified.hpp"

namespace DPTK_NAMESPACE {

/// Options of HtmlReport.
struct HtmlReportOptions {
    std::string title = "Training run";  ///< The heading of the page.
    /// Names and values, such as those of the program's options, in the order in which they are shown.
    std::vector<std::pair<std::string, std::string>> settings = {};
    /// Callbacks whose results are shown, or null. They belong to the same trainer: it owns them.
    const ClassReport* classes = nullptr;
    const Misclassified* misclassified = nullptr;  ///< See `classes`.
};

namespace detail {

/// The results of an epoch. See TrainingStatus.
struct ReportedEpoch {
    double epoch = 0;  // counted from 1
    double step = 0;
    double lr = 0;
    double train_loss = 0;
    double train_accuracy = 0;
    double test_loss = 0;
    double test_accuracy = 0;
    double samples_per_second = 0;
    double train_seconds = 0;
    double test_seconds = 0;

    /// All members, in the order in which checkpoints contain them.
    static constexpr double ReportedEpoch::*columns[] = {&ReportedEpoch::epoch,
                                                         &ReportedEpoch::step,
                                                         &ReportedEpoch::lr,
                                                         &ReportedEpoch::train_loss,
                                                         &ReportedEpoch::train_accuracy,
                                                         &ReportedEpoch::test_loss,
                                                         &ReportedEpoch::test_accuracy,
                                                         &ReportedEpoch::samples_per_second,
                                                         &ReportedEpoch::train_seconds,
                                                         &ReportedEpoch::test_seconds};
};

}  // namespace detail

/// After each epoch, rank 0 writes an HTML file that needs no other file, no server, no network and no
/// script: loss, accuracy and learning rate by epoch, as charts and as a table; the confusion matrix and the
/// results by class; images of misclassified samples; the settings; and for each rank, how long it computed
/// and how long it sent gradients and waited for other ranks. All texts are escaped. The file is replaced as
/// a whole, so that a browser never loads a part of it.
///
/// A run that continues from a checkpoint shows the epochs before it too, if this callback was added before
/// Checkpoint. Add the same callback on all ranks. All ranks throw BackendError if the file cannot be
/// written.
///
///     const auto& classes = trainer.add(dptk::ClassReport({.class_names = names}));
///     trainer.add(dptk::HtmlReport("runs/flowers/report.html", {.classes = &classes}));
class HtmlReport : public Callback {
  public:
    /// `file` is the path of the page. Its folder must exist when the first epoch ends.
    explicit HtmlReport(std::filesystem::path file, HtmlReportOptions options = {})
        : file_(std::move(file)), options_(std::move(options)) {}

    DPTK_INLINE void train_begin(TrainingRun& run) override;
    DPTK_INLINE void epoch_begin(TrainingRun& run) override;
    DPTK_INLINE void epoch_end(TrainingRun& run) override;
    DPTK_INLINE void save(TrainingRun& run, TrainingState& state) override;
    DPTK_INLINE void restore(TrainingRun& run, const TrainingState& state) override;

  private:
    std::filesystem::path file_;
    HtmlReportOptions options_;
    std::vector<detail::ReportedEpoch> epochs_;
    std::optional<StepTimes> times_;  // at the beginning of the epoch
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/callbacks/html_report.ipp"
#endif
