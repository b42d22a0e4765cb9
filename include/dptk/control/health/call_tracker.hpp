/// Call tracker: records which call one channel of this rank is in. The thread that makes the call writes
/// the record with a few atomic stores; the watchdog and heartbeat threads read it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dptk/control/health/call_history.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Identifies a channel; equal on all ranks of the channel.
struct ChannelIdentity {
    std::string name;
    /// The job ranks of the channel's members, in the channel's order.
    std::vector<int> ranks;
    /// The time limit of each call.
    std::chrono::milliseconds timeout;
};

/// What a call of dptk is for, if the program has not made the call itself. The texts must live for ever.
struct CallPurpose {
    static constexpr std::uint64_t no_step = ~std::uint64_t{0};

    /// The program's call, such as "synchronize()"; null if the program calls the group directly.
    const char* call = nullptr;
    /// The class whose member it is.
    const char* owner = nullptr;
    std::uint64_t step = no_step;
};

class CallTracker {
  public:
    /// A call, in words that CallReader decodes.
    using Call = CallWords;

    /// Decodes packed calls.
    struct CallReader {
        /// Returns a description such as "all_reduce(sum, 4 x f32)".
        std::string (*describe)(Call);
        /// Returns the channel rank whose message the call waits for, or -1 for any rank.
        int (*peer)(Call);
    };

    /// The kind of a channel's calls. Collectives have the same numbers on all ranks; each rank numbers its
    /// messages independently.
    enum class Calls : std::uint8_t { collectives, messages };

    /// A consistent copy of the state. `sequence` is the number, from 1, of the last call that has begun.
    struct Snapshot {
        std::uint64_t sequence = 0;
        bool active = false;
        Call call = {};
        /// A hash of the active call. 0 if no call is active, or if the active call may be an earlier one,
        /// re-entered by resume(), to which `sequence` does not belong.
        std::uint64_t hash = 0;
    };

    CallTracker(ChannelIdentity identity, Calls calls, CallReader reader);

    /// Keeps a history of the calls from now on.
    void keep_history() { history_ = std::make_unique<CallHistory>(); }

    /// Records that the next call begins.
    void begin(Call call) noexcept {
        if (history_) history_->add(state_.load(std::memory_order_relaxed) / 2 + 1, call);
        enter(call, 3);
    }

    /// Lets the active call, which has thrown an error, count as no call in the history: if the error is
    /// agreed, the calls of the ranks may differ.
    void forget() noexcept {
        if (history_) history_->forget(state_.load(std::memory_order_relaxed) / 2);
    }

    /// Records that this thread re-enters a call that it began earlier and left with end(). Does not increase
    /// the sequence number.
    void resume(Call call) noexcept {
        last_resumed_.store(state_.load(std::memory_order_relaxed) / 2, std::memory_order_release);
        enter(call, 1);
    }

    void end() noexcept {
        state_.store(state_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    }

    /// Returns the number of the call that is active, if there is one.
    [[nodiscard]] std::optional<std::uint64_t> active_call() const noexcept {
        const std::uint64_t state = state_.load(std::memory_order_acquire);
        return state % 2 == 1 ? std::optional(state / 2) : std::nullopt;
    }

    /// Sets the time limit of the calls that follow; 0 means the channel's.
    void set_call_timeout(std::chrono::milliseconds timeout) noexcept {
        call_timeout_.store(timeout, std::memory_order_relaxed);
    }

    /// Returns the time limit of the current call.
    [[nodiscard]] std::chrono::milliseconds timeout() const noexcept {
        const std::chrono::milliseconds own = call_timeout_.load(std::memory_order_relaxed);
        return own.count() != 0 ? own : identity_.timeout;
    }

    [[nodiscard]] const ChannelIdentity& identity() const noexcept { return identity_; }
    [[nodiscard]] const std::string& name() const noexcept { return identity_.name; }
    [[nodiscard]] bool carries_messages() const noexcept { return calls_ == Calls::messages; }

    /// Records that the program has stopped waiting for a call that cannot be interrupted, because of an
    /// exception.
    void abandon() noexcept { is_abandoned_ = true; }

    [[nodiscard]] bool is_abandoned() const noexcept { return is_abandoned_; }

    /// Sets the purpose of the calls that follow. Any thread may call it.
    void set_purpose(const CallPurpose& purpose) noexcept;

    [[nodiscard]] Snapshot look() const noexcept;

    /// Returns a description such as "all_reduce(sum, 4 x f32) #42" or "recv(4 x f32, from rank 1)". If the
    /// calls have a purpose: "synchronize(), step 12, of DistributedDataParallel: all_reduce(sum, 4 x f32)
    /// #42".
    [[nodiscard]] std::string describe(const Snapshot& snapshot) const;

    /// Returns the history of the calls, or null.
    [[nodiscard]] const CallHistory* history() const noexcept { return history_.get(); }

    /// Returns a description, such as "all_reduce(sum, 4 x f32) #42", of a call that the history keeps.
    [[nodiscard]] std::optional<std::string> describe_earlier(std::uint64_t number) const;

    /// Results of peer() that are not a rank.
    static constexpr int no_peer = -1;
    static constexpr int any_peer = -2;

    /// Returns the job rank whose message the call waits for, any_peer if a message from any rank completes
    /// the call, or no_peer if the call does not wait for a message.
    [[nodiscard]] int peer(const Snapshot& snapshot) const;

    /// Returns the number of the next channel that is created from this one. All ranks create these channels
    /// in the same order.
    [[nodiscard]] int next_child() noexcept { return children_++; }

    /// Returns the number of the next monitored_barrier on this channel, from 1.
    [[nodiscard]] std::uint64_t next_barrier() noexcept { return ++barriers_; }

  private:
    void enter(Call call, std::uint64_t step) noexcept {
        const std::uint64_t state = state_.load(std::memory_order_relaxed);
        first_.store(call.first, std::memory_order_release);  // visible only after the previous end()
        second_.store(call.second, std::memory_order_release);
        state_.store(state + step, std::memory_order_release);
    }

    ChannelIdentity identity_;
    Calls calls_;
    CallReader reader_;
    std::unique_ptr<CallHistory> history_;
    std::atomic<std::uint64_t> state_ = 0;  // twice the sequence number, plus one while active
    std::atomic<std::uint64_t> first_ = 0;
    std::atomic<std::uint64_t> second_ = 0;
    std::atomic<std::uint64_t> last_resumed_ = 0;  // the sequence number at the last resume()
    std::atomic<std::chrono::milliseconds> call_timeout_ = std::chrono::milliseconds(0);
    std::atomic<const char*> purpose_ = nullptr;
    std::atomic<const char*> owner_ = nullptr;
    std::atomic<std::uint64_t> step_ = CallPurpose::no_step;
    std::atomic<bool> is_abandoned_ = false;
    int children_ = 0;
    std::uint64_t barriers_ = 0;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/call_tracker.ipp"
#endif
