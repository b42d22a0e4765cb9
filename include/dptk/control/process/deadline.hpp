/// Deadlines of blocking calls, and the format of durations in messages.
#pragma once

#include <chrono>
#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The longest timeout that is used: longer than any useful wait, and short enough not to overflow a clock.
inline constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24 * 3650);

class Deadline {
  public:
    using Clock = std::chrono::steady_clock;

    /// Creates a deadline that is `timeout` from now. A negative timeout counts as 0.
    explicit Deadline(std::chrono::milliseconds timeout);

    [[nodiscard]] Clock::time_point at() const noexcept { return at_; }
    [[nodiscard]] bool passed() const;

    /// Returns the time until the deadline, rounded up, or 0 once it has passed.
    [[nodiscard]] std::chrono::milliseconds left() const;

  private:
    Clock::time_point at_;
};

/// Formats a duration: "30 s", or "1500 ms" if it is not a whole number of seconds.
[[nodiscard]] std::string duration_text(std::chrono::milliseconds duration);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/deadline.ipp"
#endif
