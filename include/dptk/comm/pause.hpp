/// Waiting for what tells only those who ask.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace dptk::detail {

/// Between two looks: short at first, up to a millisecond later.
class Pause {
  public:
    void operator()() {
        constexpr int yields = 64;
        constexpr std::chrono::microseconds longest{1000};
        if (++looks_ <= yields) return std::this_thread::yield();
        std::this_thread::sleep_for(sleep_);
        sleep_ = std::min(sleep_ * 2, longest);
    }

  private:
    int looks_ = 0;
    std::chrono::microseconds sleep_{10};
};

}  // namespace dptk::detail
