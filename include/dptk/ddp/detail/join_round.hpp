/// One step of a training with uneven inputs (Join), in which some ranks may have run out of samples.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Says which ranks still have samples in a step: see ddp/join.hpp.
struct JoinRound {
    /// The number of ranks that have samples.
    int present = 0;
    /// The first rank that has samples; its buffers are broadcast.
    int first = 0;
    /// Whether averages without sample counts are over the ranks that have samples, instead of over all
    /// ranks.
    bool averages_over_present = false;
};

}  // namespace DPTK_NAMESPACE::detail
