/// PacedProgress, which limits how often a waiting rank lets another library progress.
#pragma once

#include <chrono>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Calls a progress function so rarely that it takes at most a tenth of the time, unless operations are
/// pending. With more ranks than processors, Open MPI yields the processor in each call that finds nothing to
/// do. If other programs need the processor, this costs one of their time slices.
class PacedProgress {
  public:
    /// Returns the result of `progress`, which is whether operations are pending, or false if it is too early
    /// for a call.
    template <class Progress>
    bool operator()(Progress&& progress) {
        const Clock::time_point begin = Clock::now();
        if (!is_pending_ && begin < next_) return false;
        is_pending_ = progress();
        const Clock::time_point end = Clock::now();
        next_ = end + 9 * (end - begin);
        return is_pending_;
    }

  private:
    using Clock = std::chrono::steady_clock;

    bool is_pending_ = false;
    Clock::time_point next_{};
};

}  // namespace DPTK_NAMESPACE::detail
