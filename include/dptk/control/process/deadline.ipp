#pragma once

#include "dptk/control/process/deadline.hpp"

#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE Deadline::Deadline(std::chrono::milliseconds timeout)
    : at_(Clock::now() + std::clamp(timeout, std::chrono::milliseconds(0), longest_wait)) {}

DPTK_INLINE bool Deadline::passed() const {
    return Clock::now() >= at_;
}

DPTK_INLINE std::chrono::milliseconds Deadline::left() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now());
    return std::max(left, std::chrono::milliseconds(0));
}

DPTK_INLINE std::string duration_text(std::chrono::milliseconds duration) {
    if (duration.count() % 1000 == 0) return text(duration.count() / 1000, " s");
    return text(duration.count(), " ms");
}

}  // namespace DPTK_NAMESPACE::detail
