#pragma once

#include "dptk/comm/engine/stream_calls.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<StreamCalls> StreamCalls::make(std::shared_ptr<CallTracker> tracker) {
    std::shared_ptr<StreamCalls> calls(new StreamCalls(std::move(tracker)));
    Watchdog::get().watch(calls);
    return calls;
}

DPTK_INLINE void StreamCalls::finish() {
    while (const std::shared_ptr<WorkState> last = last_call()) {
        static_cast<void>(last->wait(std::chrono::nanoseconds::max()));
        look();
    }
    release_ended();
}

DPTK_INLINE void StreamCalls::look() noexcept {
    const std::lock_guard lock(mutex_);
    while (!calls_.empty() && calls_.front().work->ended()) {
        ended_.push_back(std::move(calls_.front()));
        calls_.pop_front();
        count_ended();
    }
}

DPTK_INLINE std::chrono::milliseconds StreamCalls::interval() const noexcept {
    return std::chrono::milliseconds(100);
}

DPTK_INLINE StreamCalls::StreamCalls(std::shared_ptr<CallTracker> tracker) : tracker_(std::move(tracker)) {}

DPTK_INLINE void StreamCalls::count_ended() noexcept {
    if (--in_flight_ == 0) tracker_->end();
}

DPTK_INLINE void StreamCalls::release_ended() {
    std::deque<Call> ended;
    const std::lock_guard lock(mutex_);
    std::swap(ended, ended_);
}

DPTK_INLINE std::shared_ptr<WorkState> StreamCalls::last_call() {
    const std::lock_guard lock(mutex_);
    return calls_.empty() ? nullptr : calls_.back().work;
}

}  // namespace DPTK_NAMESPACE::detail
