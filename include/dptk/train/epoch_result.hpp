/// EpochResult, the result of a pass over a dataset.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The result of a pass over a dataset. Loss, accuracy and the number of samples are over all ranks, with
/// each sample counted once.
struct EpochResult {
    double loss = 0;  ///< The mean over the samples.
    /// The fraction of samples whose largest logit is that of their label; NaN if the model does not report
    /// it, which is then no classifier.
    double accuracy = 0;
    std::size_t samples = 0;  ///< The number of samples.
    double seconds = 0;       ///< The duration, by this rank's clock.
};

}  // namespace DPTK_NAMESPACE
