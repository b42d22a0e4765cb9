/// A step of ranks of which some may have run out of samples.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Which ranks take part in a step with samples of their own; see ddp/join.hpp.
struct JoinRound {
    /// How many do.
    int present = 0;
    /// The first of them, whose buffers go to all.
    int first = 0;
    /// GradientPostprocessing without sample counts are over those that are present, and not over all ranks.
    bool averages_over_present = false;
};

}  // namespace DPTK_NAMESPACE::detail
