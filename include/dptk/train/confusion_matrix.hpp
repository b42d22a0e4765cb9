/// ConfusionMatrix, which counts what a classifier predicted for the samples of each class, and precision,
/// recall and F1 by class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The results for one class, as in scikit-learn's classification_report. A quotient is 0 if its denominator
/// is 0.
struct ClassResult {
    double precision = 0;       ///< Of the samples predicted as this class, the fraction that has its label.
    double recall = 0;          ///< Of the samples with its label, the fraction predicted as this class.
    double f1 = 0;              ///< The harmonic mean of precision and recall.
    std::uint64_t support = 0;  ///< The number of samples with its label.
};

/// The number of samples for each pair of a label and a predicted class.
class ConfusionMatrix {
  public:
    /// Makes a matrix of zeros. It takes 8 bytes for each pair of classes.
    explicit ConfusionMatrix(std::size_t classes) : classes_(classes), counts_(classes * classes) {}

    /// Counts a sample. Label and predicted class must be below classes().
    void add(std::size_t label, std::size_t predicted) noexcept { ++counts_[label * classes_ + predicted]; }

    /// Returns the number of classes.
    [[nodiscard]] std::size_t classes() const noexcept { return classes_; }

    /// Returns the number of samples with a label that were predicted as a class.
    [[nodiscard]] std::uint64_t at(std::size_t label, std::size_t predicted) const noexcept {
        return counts_[label * classes_ + predicted];
    }

    /// Returns all counts, of shape [classes (labels), classes (predicted)], for example for all_reduce().
    [[nodiscard]] std::span<std::uint64_t> counts() noexcept { return counts_; }
    /// Returns all counts, for reading.
    [[nodiscard]] std::span<const std::uint64_t> counts() const noexcept { return counts_; }

    /// Returns the number of samples.
    [[nodiscard]] std::uint64_t samples() const noexcept;

    /// Returns the number of samples that were predicted as the class of their label.
    [[nodiscard]] std::uint64_t correct() const noexcept;

    /// Returns the fraction of the samples that were predicted as the class of their label; 0 without
    /// samples.
    [[nodiscard]] double accuracy() const noexcept;

    /// Returns the results for a class, which must be below classes().
    [[nodiscard]] ClassResult result(std::size_t c) const noexcept;

    /// Returns the means over the classes, each with the same weight; the support is the number of samples.
    [[nodiscard]] ClassResult macro_mean() const noexcept;
    /// Returns the means over the classes, weighted by their support; the support is the number of samples.
    [[nodiscard]] ClassResult weighted_mean() const noexcept;

  private:
    std::size_t classes_;
    std::vector<std::uint64_t> counts_;
};

namespace detail {

/// Returns the name of a class: its number, unless there are names.
[[nodiscard]] std::string class_name(std::span<const std::string> names, std::size_t c);

/// Returns what is wrong with the number of names; empty if it is 0 or the number of classes.
[[nodiscard]] std::string problem_of_names(std::string_view where, std::size_t names, std::size_t classes);

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/confusion_matrix.ipp"
#endif
