/// BatchOutputs, what a model computed for this rank's samples of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The outputs for the n samples of this rank's batch; n may be 0.
struct BatchOutputs {
    std::size_t classes = 0;             ///< The number of scores of each sample.
    std::vector<float> scores;           ///< The logits, of shape [n, classes], row-major.
    std::vector<std::int32_t> labels;    ///< The samples' labels, each in [0, classes).
    std::vector<std::size_t> positions;  ///< The samples' indices in the dataset.

    /// Returns the number of samples.
    [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }

    /// Returns the scores of sample `i`, which must be below size().
    [[nodiscard]] std::span<const float> scores_of(std::size_t i) const noexcept {
        return std::span(scores).subspan(i * classes, classes);
    }
};

}  // namespace DPTK_NAMESPACE
