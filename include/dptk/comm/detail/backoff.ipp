#pragma once

#include "dptk/comm/detail/backoff.hpp"

#include <algorithm>
#include <thread>

#include "dptk/comm/detail/yield_briefly.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void Backoff::operator()() {
    constexpr int yields = 64;
    constexpr std::chrono::microseconds longest{1000};
    if (++polls_ <= yields && yield_briefly()) return;
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, longest);
}

}  // namespace DPTK_NAMESPACE::detail
