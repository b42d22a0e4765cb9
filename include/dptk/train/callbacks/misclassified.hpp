/// Misclassified, a callback that keeps the samples of an evaluation that a network got most wrong, with
/// their images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/data/image.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/confusion_matrix.hpp"

namespace DPTK_NAMESPACE {

/// A sample whose predicted class is not its label.
struct MisclassifiedSample {
    std::size_t position = 0;   ///< The sample's index in the dataset.
    std::size_t label = 0;      ///< The class that it has.
    std::size_t predicted = 0;  ///< The class with the largest score.
    double score = 0;           ///< The probability (softmax) of the predicted class, in [0, 1].
    Image image = {};           ///< See TrainingRun::test_image(); it may have no pixels.
};

/// Options of Misclassified.
struct MisclassifiedOptions {
    std::vector<std::string> class_names = {};  ///< One for each class. Empty: the numbers of the classes.
    std::size_t count = 16;                     ///< The largest number of samples that are kept.
};

/// Keeps those misclassified samples of each evaluation for which the network gave the wrong class the
/// highest probability; among equal probabilities, those with the lowest position. If the network computes
/// the same scores on any number of ranks, the samples are therefore the same too. Rank 0 gathers them at the
/// end of an evaluation; meanwhile each rank keeps `count` samples. Add the same callback on all ranks. An
/// evaluation throws ArgumentError on all ranks if the number of names is not that of classes.
class Misclassified : public Callback {
  public:
    /// Makes the callback.
    explicit Misclassified(MisclassifiedOptions options = {}) : options_(std::move(options)) {}

    DPTK_INLINE void test_begin(TrainingRun& run) override;
    DPTK_INLINE void test_batch(TrainingRun& run) override;
    DPTK_INLINE void test_summary(TrainingRun& run) override;

    /// Returns the samples of the last evaluation, the highest score first, on rank 0 from
    /// Callback::test_summary() of this callback on. Empty on other ranks.
    [[nodiscard]] const std::vector<MisclassifiedSample>& samples() const noexcept { return samples_; }

    /// Returns the name of a class.
    [[nodiscard]] std::string name_of(std::size_t c) const {
        return detail::class_name(options_.class_names, c);
    }

    /// Returns the samples as a table in Markdown, without the images.
    [[nodiscard]] std::string text() const;

  private:
    MisclassifiedOptions options_;
    std::size_t classes_ = 0;
    std::vector<MisclassifiedSample> own_;  // of this rank, in the current evaluation
    std::vector<MisclassifiedSample> samples_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/callbacks/misclassified.ipp"
#endif
