/// Call history: the calls that one rank has made on a channel. Ranks publish marks of their histories with
/// their heartbeats, so that calls that differ are found even if they all ended, with wrong numbers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A call, packed into two words.
struct CallWords {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
};

/// Stands for all calls of a channel up to `number`. Two ranks that have made the same calls have the same
/// marks.
struct CallMark {
    std::uint64_t number = 0;  ///< less than 2^40
    std::uint32_t hash = 0;    ///< less than 2^24

    [[nodiscard]] std::uint64_t packed() const noexcept { return number << 24 | hash; }
    [[nodiscard]] static CallMark from(std::uint64_t packed) noexcept {
        return {packed >> 24, static_cast<std::uint32_t>(packed & 0xffffff)};
    }
};

/// One thread at a time adds calls; any thread may read.
class CallHistory {
  public:
    /// The number of calls that are kept.
    static constexpr std::size_t kept = 1024;

    /// Adds the next call. `number` is that of the previous call, plus one.
    void add(std::uint64_t number, CallWords call) noexcept {
        before_ = hash_;
        hash_ = mix(mix(hash_, call.first), call.second);
        const std::uint64_t mark = CallMark{number, static_cast<std::uint32_t>(hash_ >> 40)}.packed();
        Entry& entry = entries_[number % kept];
        entry.mark.store(0, std::memory_order_relaxed);
        entry.first.store(call.first, std::memory_order_release);  // visible only after the 0
        entry.second.store(call.second, std::memory_order_release);
        entry.mark.store(mark, std::memory_order_release);
        if (number % kept == 0) [[unlikely]]
            write_old(number, mark);
    }

    /// Lets the call that was added last count as no call: it has ended in an error.
    void forget(std::uint64_t number) noexcept;

    /// Returns the mark of a call that is kept and was not forgotten.
    [[nodiscard]] std::optional<CallMark> mark(std::uint64_t number) const noexcept;

    /// Returns marks up to `last`: of the most recent calls, and of the last multiple of each power of two,
    /// so that two ranks have common ones even if one is far ahead.
    [[nodiscard]] std::vector<CallMark> marks(std::uint64_t last) const;

    /// Returns a call that is kept and was not forgotten.
    [[nodiscard]] std::optional<CallWords> call(std::uint64_t number) const noexcept;

  private:
    struct Entry {
        std::atomic<std::uint64_t> mark = 0;  // 0 while the entry changes, and if the call was forgotten
        std::atomic<std::uint64_t> first = 0;
        std::atomic<std::uint64_t> second = 0;
    };

    static constexpr int recent_marks = 8;
    static constexpr int kept_bits = 10;
    static constexpr int number_bits = 40;

    [[nodiscard]] static std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept {
        hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
        return hash ^ hash >> 32;
    }

    /// Keeps the mark of a number that is divisible by `kept` for longer than the call.
    void write_old(std::uint64_t number, std::uint64_t mark) noexcept;

    std::uint64_t hash_ = 0;
    std::uint64_t before_ = 0;  // the hash without the last call
    std::array<Entry, kept> entries_;
    /// The mark of the last number that is divisible by 2^(kept_bits + i), and by no higher power.
    std::array<std::atomic<std::uint64_t>, number_bits - kept_bits> old_marks_{};
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/call_history.ipp"
#endif
