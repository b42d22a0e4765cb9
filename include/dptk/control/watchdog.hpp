/// One thread per process that looks, from aside and now and then, at whatever asks for it. It is there only
/// while something is watched.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "dptk/control/quiet_thread.hpp"
#include "dptk/core/export.hpp"

namespace dptk {

class Watched {
  public:
    virtual ~Watched() = default;

    /// Called on the watchdog's thread. Must not block for long, nor throw.
    virtual void look() noexcept = 0;

    /// How long may pass between two looks.
    [[nodiscard]] virtual std::chrono::milliseconds interval() const noexcept = 0;
};

class DPTK_EXPORT Watchdog {
  public:
    [[nodiscard]] static Watchdog& get() {
        static Watchdog& watchdog = *new Watchdog;  // its thread may outlive the statics of the program
        return watchdog;
    }

    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// Looks at `subject` until nobody else owns it.
    void watch(const std::shared_ptr<Watched>& subject) {
        {
            const std::lock_guard lock(mutex_);
            subjects_.push_back(subject);
            interval_ = std::min(interval_, subject->interval());
            if (!running_) detail::start_quiet_thread([this] { run(); }).detach();
            running_ = true;
        }
        changed_.notify_all();
    }

  private:
    static constexpr std::chrono::milliseconds longest{500};

    Watchdog() = default;

    void run() {
        std::unique_lock lock(mutex_);
        while (!subjects_.empty()) {
            changed_.wait_for(lock, interval_);
            interval_ = longest;
            for (std::size_t i = subjects_.size(); i-- > 0;) {
                std::shared_ptr<Watched> subject = subjects_[i].lock();
                if (!subject) {
                    subjects_[i] = std::move(subjects_.back());
                    subjects_.pop_back();
                    continue;
                }
                interval_ = std::min(interval_, subject->interval());
                lock.unlock();
                subject->look();
                subject.reset();  // perhaps the last owner: not under the lock
                lock.lock();
            }
        }
        running_ = false;
        interval_ = longest;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::weak_ptr<Watched>> subjects_;
    std::chrono::milliseconds interval_ = longest;
    bool running_ = false;
};

}  // namespace dptk
