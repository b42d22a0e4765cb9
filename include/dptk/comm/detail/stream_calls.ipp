#pragma once

#include "dptk/comm/detail/stream_calls.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<StreamCalls> StreamCalls::make(std::shared_ptr<CallTracker> activity) {
    std::shared_ptr<StreamCalls> calls(new StreamCalls(std::move(activity)));
    Watchdog::get().watch(calls);
    return calls;
}

DPTK_INLINE void StreamCalls::finish() {
    while (const std::shared_ptr<WorkState> last = last_call()) {
        static_cast<void>(last->wait(std::chrono::nanoseconds::max()));
        look();
    }
    let_go();
}

DPTK_INLINE void StreamCalls::look() noexcept {
    const std::lock_guard lock(mutex_);
    while (!calls_.empty() && calls_.front().work->ended()) {
        ended_.push_back(std::move(calls_.front()));
        calls_.pop_front();
        one_ended();
    }
}

DPTK_INLINE std::chrono::milliseconds StreamCalls::interval() const noexcept {
    return std::chrono::milliseconds(100);
}

DPTK_INLINE StreamCalls::StreamCalls(std::shared_ptr<CallTracker> activity) : tracker_(std::move(activity)) {}

DPTK_INLINE void StreamCalls::one_ended() noexcept {
    if (--under_way_ == 0) tracker_->end();
}

DPTK_INLINE void StreamCalls::let_go() {
    std::deque<Call> ended;
    const std::lock_guard lock(mutex_);
    std::swap(ended, ended_);
}

DPTK_INLINE std::shared_ptr<WorkState> StreamCalls::last_call() {
    const std::lock_guard lock(mutex_);
    return calls_.empty() ? nullptr : calls_.back().work;
}

}  // namespace DPTK_NAMESPACE::detail
