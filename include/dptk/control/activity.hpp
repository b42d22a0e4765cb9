/// What one channel of this rank is doing: which call, since when. Whoever makes calls writes it, with a few
/// plain stores; the watchdog and the heartbeat read it from aside.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "dptk/core/text.hpp"

namespace dptk {

class Activity {
  public:
    /// A call in two words, whose meaning only `Describe` knows.
    struct Call {
        std::uint64_t first = 0;
        std::uint64_t second = 0;
    };
    using Describe = std::string (*)(Call);

    /// What was seen at one moment. Calls are numbered from 1; sequence is that of the last one begun.
    struct Snapshot {
        std::uint64_t sequence = 0;
        bool active = false;
        Call call = {};
    };

    /// `name` is the same on all ranks for channels that belong together.
    Activity(std::string name, Describe describe) : name_(std::move(name)), describe_(describe) {}

    /// The next call begins.
    void begin(Call call) noexcept { enter(call, 3); }

    /// Goes on with a call that was begun and left before.
    void resume(Call call) noexcept { enter(call, 1); }

    void end() noexcept {
        state_.store(state_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    }

    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    [[nodiscard]] Snapshot look() const noexcept {
        while (true) {
            const std::uint64_t state = state_.load(std::memory_order_acquire);
            const Call call{first_.load(std::memory_order_acquire), second_.load(std::memory_order_acquire)};
            if (state_.load(std::memory_order_relaxed) != state) continue;
            return {state / 2, state % 2 == 1, call};
        }
    }

    /// "all_reduce(sum, 4 x f32) #42"
    [[nodiscard]] std::string describe(const Snapshot& snapshot) const {
        return detail::text(describe_(snapshot.call), " #", snapshot.sequence);
    }

    /// The name of the next channel that is made from this one, on all ranks in the same order.
    [[nodiscard]] std::string next_child() { return detail::text(name_, '.', children_++); }

    /// The number of the next monitored_barrier on this channel, from 1.
    [[nodiscard]] std::uint64_t next_barrier() noexcept { return ++barriers_; }

  private:
    void enter(Call call, std::uint64_t step) noexcept {
        const std::uint64_t state = state_.load(std::memory_order_relaxed);
        first_.store(call.first, std::memory_order_release);  // not before the end of the call before
        second_.store(call.second, std::memory_order_release);
        state_.store(state + step, std::memory_order_release);
    }

    std::string name_;
    Describe describe_;
    std::atomic<std::uint64_t> state_ = 0;  // twice the sequence number, plus one while active
    std::atomic<std::uint64_t> first_ = 0;
    std::atomic<std::uint64_t> second_ = 0;
    int children_ = 0;
    std::uint64_t barriers_ = 0;
};

}  // namespace dptk
