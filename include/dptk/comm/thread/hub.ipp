#pragma once

#include "dptk/comm/thread/hub.hpp"

#include <chrono>
#include <cstddef>
#include <utility>

#include "dptk/comm/detail/yield_briefly.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ThreadHub::ThreadHub(int size, std::shared_ptr<JobState> job_state)
    : size_(size),
      job_state_(std::move(job_state)),
      mailbox_(std::make_shared<ThreadMailbox>(size, job_state_)),
      calls_(static_cast<std::size_t>(size)) {}

DPTK_INLINE std::shared_ptr<ThreadHub> ThreadHub::make(int size, const std::shared_ptr<JobState>& job_state) {
    auto hub = std::make_shared<ThreadHub>(size, job_state);
    job_state->subscribe(hub);
    job_state->subscribe(hub->mailbox_);
    return hub;
}

DPTK_INLINE void ThreadHub::publish_and_wait(int rank, const Collective& call) {
    calls_[static_cast<std::size_t>(rank)] = call;
    pass(rank, Waiting::may_fail);
}

DPTK_INLINE void ThreadHub::check_complete() const {
    if (!spoiled_) return;
    constexpr std::chrono::milliseconds soon{2000};  // time for the failed rank to report the cause
    static_cast<void>(job_state_->wait_until_failed(soon));
    job_state_->check();
    throw PeerLostError("another rank failed during the call");
}

DPTK_INLINE std::shared_ptr<ThreadHub> ThreadHub::subgroup_hub(std::string_view name, int size) {
    const std::lock_guard lock(mutex_);
    Part& part = parts_[std::string(name)];
    if (!part.hub) part.hub = make(size, job_state_);
    std::shared_ptr<ThreadHub> hub = part.hub;
    if (++part.taken == size) parts_.erase(std::string(name));
    return hub;
}

DPTK_INLINE void ThreadHub::leave(int rank) noexcept {
    mailbox_->leave(rank);
    {
        const std::lock_guard lock(mutex_);
        if (left_ < 0) left_ = rank;
    }
    changed_.notify_all();
}

DPTK_INLINE void ThreadHub::wake() noexcept {
    { const std::lock_guard lock(mutex_); }  // a thread that has checked the condition is waiting by now
    changed_.notify_all();
}

DPTK_INLINE void ThreadHub::pass(int rank, Waiting waiting) {
    std::unique_lock lock(mutex_);
    if (waiting == Waiting::may_fail && is_lost()) throw_lost(rank);
    const std::uint64_t phase = phase_;
    if (++arrived_ == size_) {
        arrived_ = 0;
        phase_ = phase + 1;
        lock.unlock();
        changed_.notify_all();
        return;
    }
    lock.unlock();
    for (int yielded = 0; yielded < yields && phase_ == phase && yield_briefly(); ++yielded) {}
    if (phase_ != phase) return;
    lock.lock();
    changed_.wait(lock, [&] { return phase_ != phase || (waiting == Waiting::may_fail && is_lost()); });
    if (phase_ == phase) {
        broken_ = true;  // this rank stops waiting: the barrier can never complete
        changed_.notify_all();
        throw_lost(rank);
    }
}

DPTK_INLINE void ThreadHub::throw_lost(int rank) const {
    job_state_->check();
    const std::string call = describe(calls_[static_cast<std::size_t>(rank)]);
    if (left_ < 0)
        throw PeerLostError(text("another rank has stopped waiting in ", call, " because a rank was lost"),
                            {.rank = rank});
    throw PeerLostError(
        text("rank ", left_, " has left the group, and rank ", rank, " waits for it in ", call),
        {.rank = rank, .peer = left_});
}

}  // namespace DPTK_NAMESPACE::detail
