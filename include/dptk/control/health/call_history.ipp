#pragma once

#include "dptk/control/health/call_history.hpp"

#include <bit>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::optional<CallMark> CallHistory::mark(std::uint64_t number) const noexcept {
    const CallMark found = CallMark::from(entries_[number % kept].mark.load(std::memory_order_acquire));
    return found.number == number && number > 0 ? std::optional(found) : std::nullopt;
}

DPTK_INLINE std::vector<CallMark> CallHistory::marks(std::uint64_t last) const {
    std::vector<CallMark> out;
    const auto add = [&](std::uint64_t number) {
        if (!out.empty() && out.back().number <= number) return;
        if (const std::optional<CallMark> found = mark(number)) out.push_back(*found);
    };
    for (std::uint64_t back = 0; back < recent_marks && back < last; ++back) add(last - back);
    for (int bits = 3; bits < kept_bits; ++bits) add(last >> bits << bits);
    for (const std::atomic<std::uint64_t>& old : old_marks_) {
        const CallMark found = CallMark::from(old.load(std::memory_order_acquire));
        if (found.number > 0 && found.number <= last) out.push_back(found);
    }
    return out;
}

DPTK_INLINE std::optional<CallWords> CallHistory::call(std::uint64_t number) const noexcept {
    const Entry& entry = entries_[number % kept];
    const std::uint64_t before = entry.mark.load(std::memory_order_acquire);
    const CallWords words{entry.first.load(std::memory_order_acquire),
                          entry.second.load(std::memory_order_acquire)};
    const bool is_whole = entry.mark.load(std::memory_order_relaxed) == before;
    if (!is_whole || number == 0 || CallMark::from(before).number != number) return std::nullopt;
    return words;
}

DPTK_INLINE void CallHistory::forget(std::uint64_t number) noexcept {
    hash_ = before_;
    entries_[number % kept].mark.store(0, std::memory_order_release);
    if (number % kept == 0) write_old(number, 0);
}

DPTK_INLINE void CallHistory::write_old(std::uint64_t number, std::uint64_t mark) noexcept {
    const auto power = static_cast<std::size_t>(std::countr_zero(number) - kept_bits);
    old_marks_[power].store(mark, std::memory_order_release);
}

}  // namespace DPTK_NAMESPACE::detail
