/// Waiting for what tells only those who ask.
#pragma once

#include <chrono>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Between two looks: short at first, up to a millisecond later.
class Pause {
  public:
    void operator()();

  private:
    int looks_ = 0;
    std::chrono::microseconds sleep_{10};
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/pause.ipp"
#endif
