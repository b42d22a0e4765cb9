/// What one channel of this rank is doing: which call, since when. Whoever makes calls writes it, with a few
/// plain stores; the watchdog and the heartbeat read it from aside.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// What a channel is, on all its ranks alike.
struct ChannelIdentity {
    /// The same on all ranks for channels that belong together.
    std::string name;
    /// The channel's ranks as the job numbers them, in the channel's order.
    std::vector<int> ranks;
    /// Of every call.
    std::chrono::milliseconds timeout;
};

class CallTracker {
  public:
    /// A call in two words, whose meaning only CallReader knows.
    struct Call {
        std::uint64_t first = 0;
        std::uint64_t second = 0;
    };

    /// How calls are read.
    struct CallReader {
        /// "all_reduce(sum, 4 x f32)"
        std::string (*describe)(Call);
        /// The rank for whose message the call waits, in the channel's order; -1 for any.
        int (*peer)(Call);
    };

    /// Collectives are numbered on all ranks alike. Of messages, every rank counts its own.
    enum class Calls : std::uint8_t { collectives, messages };

    /// What was seen at one moment. Calls are numbered from 1; sequence is that of the last one begun.
    struct Snapshot {
        std::uint64_t sequence = 0;
        bool active = false;
        Call call = {};
    };

    CallTracker(ChannelIdentity identity, Calls calls, CallReader reader);

    /// The next call begins.
    void begin(Call call) noexcept { enter(call, 3); }

    /// Goes on with a call that was begun and left before.
    void resume(Call call) noexcept { enter(call, 1); }

    void end() noexcept {
        state_.store(state_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    }

    [[nodiscard]] const ChannelIdentity& identity() const noexcept { return identity_; }
    [[nodiscard]] const std::string& name() const noexcept { return identity_.name; }
    [[nodiscard]] bool carries_messages() const noexcept { return calls_ == Calls::messages; }

    [[nodiscard]] Snapshot look() const noexcept;

    /// "all_reduce(sum, 4 x f32) #42", "recv(4 x f32, from rank 1)"
    [[nodiscard]] std::string describe(const Snapshot& snapshot) const;

    /// The rank of the job for whose message the call waits; any_peer where one of any rank will do; no_peer
    /// where it is no message.
    static constexpr int no_peer = -1;
    static constexpr int any_peer = -2;
    [[nodiscard]] int peer(const Snapshot& snapshot) const;

    /// The number of the next channel that is made from this one, on all ranks in the same order.
    [[nodiscard]] int next_child() noexcept { return children_++; }

    /// The number of the next monitored_barrier on this channel, from 1.
    [[nodiscard]] std::uint64_t next_barrier() noexcept { return ++barriers_; }

  private:
    void enter(Call call, std::uint64_t step) noexcept {
        const std::uint64_t state = state_.load(std::memory_order_relaxed);
        first_.store(call.first, std::memory_order_release);  // not before the end of the call before
        second_.store(call.second, std::memory_order_release);
        state_.store(state + step, std::memory_order_release);
    }

    ChannelIdentity identity_;
    Calls calls_;
    CallReader reader_;
    std::atomic<std::uint64_t> state_ = 0;  // twice the sequence number, plus one while active
    std::atomic<std::uint64_t> first_ = 0;
    std::atomic<std::uint64_t> second_ = 0;
    int children_ = 0;
    std::uint64_t barriers_ = 0;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/call_tracker.ipp"
#endif
