/// Backoff for polling loops.
#pragma once

#include <chrono>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Waits between two polls: yields up to 64 times, then sleeps for 10 microseconds, doubling up to 1
/// millisecond.
class Backoff {
  public:
    void operator()();

  private:
    int polls_ = 0;
    std::chrono::microseconds sleep_{10};
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/backoff.ipp"
#endif
