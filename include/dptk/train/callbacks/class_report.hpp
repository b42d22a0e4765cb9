/// ClassReport, a callback that computes the confusion matrix of each evaluation, and the results by class
/// and the top-k accuracy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/confusion_matrix.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Returns the number of classes that precede a label: those with a larger score, or with the same score and
/// a smaller index. A score that is not a number precedes all others, except as that of the label.
[[nodiscard]] std::size_t rank_of_label(std::span<const float> scores, std::size_t label) noexcept;

}  // namespace detail

/// Options of ClassReport.
struct ClassReportOptions {
    std::vector<std::string> class_names = {};  ///< One for each class. Empty: the numbers of the classes.
    std::size_t top_k = 5;                      ///< The k of the top-k accuracy; at least 1.
    std::string path = {};  ///< Where rank 0 writes text() after each evaluation; empty: nowhere.
};

/// Counts the predictions of each evaluation over all ranks, each sample once. The predicted class is the
/// first one with the largest score. A sample is correct among the top k if fewer than k classes precede its
/// label: those with a larger score, or with the same score and a smaller index. The top-1 accuracy is
/// therefore EpochResult::accuracy. Add the same callback on all ranks. An evaluation throws ArgumentError on
/// all ranks if the number of names is not that of classes, and BackendError if the file cannot be written.
class ClassReport : public Callback {
  public:
    /// Throws ArgumentError for a top_k of 0.
    explicit ClassReport(ClassReportOptions options = {});

    DPTK_INLINE void test_begin(TrainingRun& run) override;
    DPTK_INLINE void test_batch(TrainingRun& run) override;
    DPTK_INLINE void test_summary(TrainingRun& run) override;

    /// Returns the options.
    [[nodiscard]] const ClassReportOptions& options() const noexcept { return options_; }

    /// Returns the confusion matrix of the last evaluation over all ranks, on all ranks, from
    /// Callback::test_summary() of this callback on. It has no classes before the first evaluation.
    [[nodiscard]] const ConfusionMatrix& matrix() const noexcept { return matrix_; }

    /// Returns the fraction of the samples of the last evaluation whose label is among the top k.
    [[nodiscard]] double top_k_accuracy() const noexcept;

    /// Returns the name of a class.
    [[nodiscard]] std::string name_of(std::size_t c) const {
        return detail::class_name(options_.class_names, c);
    }

    /// Returns the results as a table of precision, recall, F1 and support by class, accuracies, and the
    /// confusion matrix, unless it has more than 50 classes.
    [[nodiscard]] std::string text() const;

  private:
    ClassReportOptions options_;
    ConfusionMatrix own_{0};     // of this rank, in the current evaluation
    ConfusionMatrix matrix_{0};  // over all ranks
    std::uint64_t own_top_k_ = 0;
    std::uint64_t top_k_ = 0;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/callbacks/class_report.ipp"
#endif
