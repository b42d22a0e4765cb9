#pragma once

#include "dptk/control/process/awake_clock.hpp"

#include <algorithm>
#include <thread>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE PauseMeter::Clock::duration PauseMeter::look(Clock::time_point now) noexcept {
    const Clock::duration gap = now - last_look_;
    if (waiting_ > 0 && gap > shortest_pause) paused_ += gap - look_interval;
    last_look_ = now;
    return now.time_since_epoch() - paused_;
}

DPTK_INLINE void PauseMeter::begin_waiting(Clock::time_point now) noexcept {
    look(now);
    ++waiting_;
}

DPTK_INLINE void PauseMeter::end_waiting(Clock::time_point now) noexcept {
    look(now);
    --waiting_;
}

DPTK_INLINE void AwakeClock::sleep_for(duration time) {
    const Waiting waiting;
    const time_point end = now() + time;
    for (duration left = time; left > duration::zero(); left = end - now())
        std::this_thread::sleep_for(std::min<duration>(left, look_interval));
}

DPTK_INLINE AwakeClock::time_point AwakeClock::State::look() noexcept {
    const std::lock_guard lock(mutex_);
    return time_point(meter_.look(PauseMeter::Clock::now()));
}

DPTK_INLINE void AwakeClock::State::begin_waiting() noexcept {
    const std::lock_guard lock(mutex_);
    meter_.begin_waiting(PauseMeter::Clock::now());
}

DPTK_INLINE void AwakeClock::State::end_waiting() noexcept {
    const std::lock_guard lock(mutex_);
    meter_.end_waiting(PauseMeter::Clock::now());
}

}  // namespace DPTK_NAMESPACE::detail
