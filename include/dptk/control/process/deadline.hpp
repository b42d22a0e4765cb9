/// Deadlines of blocking calls, which do not count the time in which this process was stopped, and the format
/// of durations in messages.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "dptk/control/process/awake_clock.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The longest timeout that is used: longer than any useful wait, and short enough not to overflow a clock.
inline constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24 * 3650);

class Deadline {
  public:
    using Clock = AwakeClock;

    /// Creates a deadline that is `timeout` from now. A negative timeout counts as 0.
    explicit Deadline(std::chrono::milliseconds timeout);

    [[nodiscard]] bool passed() const;

    /// Returns the time until the deadline, rounded up, or 0 once it has passed.
    [[nodiscard]] std::chrono::milliseconds left() const;

    /// Waits until `condition` is true, which changes only while `changed` is notified, at most until the
    /// deadline. Returns whether it is true.
    template <class Condition>
    bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
              Condition&& condition) const {
        const Clock::Waiting waiting;
        while (!condition()) {
            const Clock::duration left = at_ - Clock::now();
            if (left <= Clock::duration::zero()) return false;
            changed.wait_for(lock, std::min<Clock::duration>(left, Clock::look_interval));
        }
        return true;
    }

  private:
    Clock::time_point at_;
};

/// Formats a duration: "30 s", or "1500 ms" if it is not a whole number of seconds.
[[nodiscard]] std::string duration_text(std::chrono::milliseconds duration);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/deadline.ipp"
#endif
