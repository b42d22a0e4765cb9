/// Points in time until which to wait, and how messages tell durations.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "dptk/core/text.hpp"

namespace dptk::detail {

/// Beyond any wait that makes sense, and far from where clocks overflow.
inline constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24 * 3650);

class Deadline {
  public:
    using Clock = std::chrono::steady_clock;

    /// A negative timeout has passed at once.
    explicit Deadline(std::chrono::milliseconds timeout)
        : at_(Clock::now() + std::clamp(timeout, std::chrono::milliseconds(0), longest_wait)) {}

    [[nodiscard]] Clock::time_point at() const noexcept { return at_; }
    [[nodiscard]] bool passed() const { return Clock::now() >= at_; }

    /// Rounded up, so that a wait for so long reaches the deadline; 0 once it has passed.
    [[nodiscard]] std::chrono::milliseconds left() const {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now());
        return std::max(left, std::chrono::milliseconds(0));
    }

  private:
    Clock::time_point at_;
};

/// "30 s", or "1500 ms" where it is no whole number of seconds.
[[nodiscard]] inline std::string duration_text(std::chrono::milliseconds duration) {
    if (duration.count() % 1000 == 0) return text(duration.count() / 1000, " s");
    return text(duration.count(), " ms");
}

}  // namespace dptk::detail
