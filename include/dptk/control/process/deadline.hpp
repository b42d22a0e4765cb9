/// Points in time until which to wait, and how messages tell durations.
#pragma once

#include <chrono>
#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Beyond any wait that makes sense, and far from where clocks overflow.
inline constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24 * 3650);

class Deadline {
  public:
    using Clock = std::chrono::steady_clock;

    /// A negative timeout has passed at once.
    explicit Deadline(std::chrono::milliseconds timeout);

    [[nodiscard]] Clock::time_point at() const noexcept { return at_; }
    [[nodiscard]] bool passed() const;

    /// Rounded up, so that a wait for so long reaches the deadline; 0 once it has passed.
    [[nodiscard]] std::chrono::milliseconds left() const;

  private:
    Clock::time_point at_;
};

/// "30 s", or "1500 ms" where it is no whole number of seconds.
[[nodiscard]] std::string duration_text(std::chrono::milliseconds duration);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/deadline.ipp"
#endif
