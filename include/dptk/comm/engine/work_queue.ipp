#pragma once

#include "dptk/comm/engine/work_queue.hpp"

#include <utility>

#include "dptk/control/process/background_thread.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool QueuedWork::wait(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto ended = [this] { return ended_; };
    if (timeout == std::chrono::nanoseconds::max()) {
        ended_changed_.wait(lock, ended);
        return true;
    }
    return Deadline(std::chrono::ceil<std::chrono::milliseconds>(timeout)).wait(ended_changed_, lock, ended);
}

DPTK_INLINE std::exception_ptr QueuedWork::error() {
    const std::lock_guard lock(mutex_);
    return error_.see();
}

DPTK_INLINE void QueuedWork::run() noexcept {
    std::exception_ptr error;
    try {
        source_rank_ = carry_out();
    } catch (...) {
        error = std::current_exception();
    }
    end(error);
}

DPTK_INLINE void QueuedWork::end(std::exception_ptr error) noexcept {
    drop();
    const std::lock_guard lock(mutex_);
    error_.set(std::move(error));
    ended_ = true;
    ended_changed_.notify_all();
}

DPTK_INLINE std::exception_ptr QueuedWork::unreported_error() {
    const std::lock_guard lock(mutex_);
    return error_.unseen();
}

DPTK_INLINE WorkQueue::~WorkQueue() {
    if (fork_guard_.is_in_child()) {
        leak();
    } else {
        finish();
    }
}

DPTK_INLINE void WorkQueue::add(std::shared_ptr<QueuedWork> work) {
    if (fork_guard_.is_in_child())
        throw ArgumentError("a forked process called an object of its parent: only the parent may do so");
    if (!thread_.joinable()) thread_ = start_background_thread([shared = shared_] { serve(*shared); });
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->waiting.push_back(std::move(work));
    }
    shared_->changed.notify_all();
}

DPTK_INLINE bool WorkQueue::has_no_work() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->waiting.empty() && !shared_->running;
}

DPTK_INLINE void WorkQueue::rethrow_dropped_error() {
    std::vector<std::shared_ptr<QueuedWork>> dropped;
    {
        const std::lock_guard lock(shared_->mutex);
        detail::erase_if(shared_->failed, [&](const std::shared_ptr<QueuedWork>& work) {
            if (work.use_count() > 1) return false;
            dropped.push_back(work);
            return true;
        });
    }
    for (const auto& work : dropped) {
        if (const std::exception_ptr error = work->unreported_error()) std::rethrow_exception(error);
    }
}

DPTK_INLINE void WorkQueue::finish() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->closing = true;
    }
    shared_->changed.notify_all();
    thread_.join();
}

DPTK_INLINE void WorkQueue::abandon() {
    if (!thread_.joinable()) return;
    Waiting dropped;
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->closing = true;
        dropped.swap(shared_->waiting);
    }
    shared_->changed.notify_all();
    for (const auto& work : dropped) {
        work->end(
            std::make_exception_ptr(PeerLostError("the group was closed before the operation started")));
    }
    thread_.detach();
}

DPTK_INLINE void WorkQueue::leak() noexcept {
    keep_for_ever(std::make_shared<std::thread>(std::move(thread_)));
}

DPTK_INLINE void WorkQueue::serve(Shared& shared) {
    std::unique_lock lock(shared.mutex);
    while (true) {
        shared.changed.wait(lock, [&] { return !shared.waiting.empty() || shared.closing; });
        if (shared.waiting.empty()) return;
        const std::shared_ptr<QueuedWork> work = std::move(shared.waiting.front());
        shared.waiting.pop_front();
        shared.running = true;
        lock.unlock();
        work->run();
        lock.lock();
        shared.running = false;
        if (work->unreported_error()) shared.failed.push_back(work);
    }
}

}  // namespace DPTK_NAMESPACE::detail
