#pragma once

#include "dptk/comm/work.hpp"

#include <utility>

namespace DPTK_NAMESPACE {

DPTK_INLINE void WorkState::order_before(StreamRef stream) {
    static_cast<void>(stream);
    static_cast<void>(wait(std::chrono::nanoseconds::max()));
}

DPTK_INLINE bool WorkState::ended() {
    return wait(std::chrono::nanoseconds::zero());
}

DPTK_INLINE void Work::wait() {
    static_cast<void>(wait(std::chrono::nanoseconds::max()));
}

DPTK_INLINE bool Work::wait(std::chrono::nanoseconds timeout) {
    if (!state_) return true;
    const bool ended = state_->wait(timeout);
    if (const std::exception_ptr failure = state_->error()) std::rethrow_exception(failure);
    return ended;
}

DPTK_INLINE void Work::wait(StreamRef stream) {
    if (!state_) return;
    state_->order_before(stream);
    if (const std::exception_ptr failure = state_->error()) std::rethrow_exception(failure);
}

DPTK_INLINE bool Work::done() {
    return !state_ || state_->wait(std::chrono::nanoseconds::zero());
}

DPTK_INLINE int Work::source_rank() {
    wait();
    return state_ ? state_->source_rank() : -1;
}

}  // namespace DPTK_NAMESPACE
