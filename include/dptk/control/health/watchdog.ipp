#pragma once

#include "dptk/control/health/watchdog.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "dptk/control/process/background_thread.hpp"
#include "dptk/control/process/deadline.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void Watchdog::watch(const std::shared_ptr<WatchdogTask>& subject) {
    {
        const std::lock_guard lock(mutex_);
        subjects_.push_back(subject);
        interval_ = std::min(interval_, subject->interval());
        if (!running_) start_background_thread([this] { run(); }).detach();
        running_ = true;
        added_ = true;
    }
    changed_.notify_all();
}

DPTK_INLINE void Watchdog::run() {
    std::unique_lock lock(mutex_);
    while (!subjects_.empty()) {
        Deadline(interval_).wait(changed_, lock, [&] { return std::exchange(added_, false); });
        interval_ = longest;
        for (std::size_t i = subjects_.size(); i-- > 0;) {
            std::shared_ptr<WatchdogTask> subject = subjects_[i].lock();
            if (!subject) {
                subjects_[i] = std::move(subjects_.back());
                subjects_.pop_back();
                continue;
            }
            interval_ = std::min(interval_, subject->interval());
            lock.unlock();
            subject->look();
            subject.reset();  // may destroy the task, so the lock must not be held
            lock.lock();
        }
    }
    running_ = false;
    interval_ = longest;
}

}  // namespace DPTK_NAMESPACE::detail
