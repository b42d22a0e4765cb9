/// Watchdog: one background thread per process that periodically runs registered tasks. The thread exists
/// only while a task is registered.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class WatchdogTask {
  public:
    virtual ~WatchdogTask() = default;

    /// Runs the task, on the watchdog thread. Must not block for long, and must not throw.
    virtual void look() noexcept = 0;

    /// Returns the longest time between two runs.
    [[nodiscard]] virtual std::chrono::milliseconds interval() const noexcept = 0;
};

class DPTK_EXPORT Watchdog {
  public:
    [[nodiscard]] static Watchdog& get() {
        static OfThisProcess<Watchdog> watchdog;
        return watchdog.get();
    }

    Watchdog() = default;
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// Runs `subject` periodically until it has no other owner.
    void watch(const std::shared_ptr<WatchdogTask>& subject);

  private:
    static constexpr std::chrono::milliseconds longest{500};

    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::weak_ptr<WatchdogTask>> subjects_;
    std::chrono::milliseconds interval_ = longest;
    bool running_ = false;
    bool added_ = false;  // a task since the last round
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/watchdog.ipp"
#endif
