/// One thread per process that looks, from aside and now and then, at whatever asks for it. It is there only
/// while something is watched.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class WatchdogTask {
  public:
    virtual ~WatchdogTask() = default;

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
    void watch(const std::shared_ptr<WatchdogTask>& subject);

  private:
    static constexpr std::chrono::milliseconds longest{500};

    Watchdog() = default;

    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::weak_ptr<WatchdogTask>> subjects_;
    std::chrono::milliseconds interval_ = longest;
    bool running_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/watchdog.ipp"
#endif
