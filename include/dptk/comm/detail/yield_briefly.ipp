#pragma once

#include "dptk/comm/detail/yield_briefly.hpp"

#include <chrono>
#include <thread>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool yield_briefly() noexcept {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::microseconds brief{200};
    constexpr std::chrono::milliseconds remembered{100};
    thread_local Clock::time_point busy_until{};
    const Clock::time_point begin = Clock::now();
    if (begin < busy_until) return false;
    std::this_thread::yield();
    const Clock::time_point end = Clock::now();
    if (end - begin <= brief) return true;
    busy_until = end + remembered;
    return false;
}

}  // namespace DPTK_NAMESPACE::detail
