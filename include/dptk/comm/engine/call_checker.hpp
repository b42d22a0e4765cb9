/// Collective mismatch and deadlock detection (DPTK_DEBUG=detail): before each collective of a channel, the
/// channel's ranks compare their calls over the control plane. If the calls differ, or if ranks wait for each
/// other in different groups, all waiting ranks throw the same MismatchError before any data is communicated.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// The number of calls on each channel.
using CallCounts = std::map<std::string, std::uint64_t, std::less<>>;

/// Records on which channel the program waits, and how many calls it has made on each channel. A wait in one
/// group excludes a call in another group only if all calls of the rank come from one thread; otherwise,
/// waits_on() returns false. A channel shares the object with its duplicates and subgroups.
class CallerState {
  public:
    /// Records, as long as the scope exists, that the calling thread waits on `channel`.
    class WaitScope {
      public:
        WaitScope(CallerState& caller, const std::string& channel);
        ~WaitScope();
        WaitScope(const WaitScope&) = delete;
        WaitScope& operator=(const WaitScope&) = delete;

      private:
        CallerState& caller_;
    };

    [[nodiscard]] bool waits_on(std::string_view channel) const;

    /// Counts a call that the program makes on `channel`, and that the calling thread or the channel's
    /// background thread will execute. Sends nothing: a WaitRecord publishes the counts.
    void announce(const std::string& channel);

    void forget(const std::string& channel);

    /// Returns the number of announced calls, by channel.
    [[nodiscard]] CallCounts announced() const;

  private:
    void begin(const std::string& channel);

    mutable std::mutex mutex_;
    std::optional<std::thread::id> thread_;
    bool several_threads_ = false;
    std::string channel_;
    CallCounts announced_;
};

/// What a rank publishes while it waits: the call, the call's channel, the ranks that have not arrived, and
/// how many calls the program has made on each channel, including those that background threads will execute.
struct WaitRecord {
    std::string channel;
    std::uint64_t number = 0;
    std::vector<int> ranks;
    std::string call;
    CallCounts announced = {};

    friend bool operator==(const WaitRecord&, const WaitRecord&) = default;

    [[nodiscard]] std::string to_value() const;

    [[nodiscard]] static std::optional<WaitRecord> from_value(std::string_view value);

    [[nodiscard]] bool is_same_call(const WaitRecord& other) const;

    [[nodiscard]] bool has_announced(const WaitRecord& other) const;
};

/// The records of all ranks, by rank; empty where a rank waits for no call.
using WaitRecords = std::vector<std::optional<WaitRecord>>;

class CallChecker {
  public:
    /// Checks the calls of a channel that has several ranks, and whose control plane has a store.
    CallChecker(std::shared_ptr<ControlPlane> control, std::shared_ptr<CallTracker> tracker,
                std::shared_ptr<CallerState> caller, Progress progress);

    [[nodiscard]] CallerState& caller() const noexcept { return *caller_; }
    [[nodiscard]] const std::string& channel() const noexcept { return tracker_->name(); }

    /// Blocks until all ranks have reached this call. Throws MismatchError, as an agreed error, if their
    /// calls differ.
    void check(const Collective& call);

    /// Counts a call of the program that is about to be checked. Sends nothing.
    void announce();

    /// Reports that this rank makes no further calls, so that the others do not wait for it.
    void leave();

  private:
    static constexpr std::string_view agreed_verdict = "agreed";
    static constexpr std::chrono::milliseconds poll_interval{200};
    /// How long a rank waits for the others before it looks for the cause of the delay.
    static constexpr std::chrono::milliseconds grace_period{1000};

    void agree_on(const Collective& call);

    [[nodiscard]] const std::vector<int>& ranks() const noexcept { return tracker_->identity().ranks; }

    [[nodiscard]] static std::string key(const WaitRecord& place, std::string_view what);
    [[nodiscard]] static std::string waiting_key(int rank);
    [[nodiscard]] static std::string arrival_key(std::string_view channel, int rank);

    [[nodiscard]] std::string own_call(const WaitRecord& here) const;
    [[nodiscard]] static std::string_view call_in(std::string_view first);
    [[nodiscard]] static int rank_in(std::string_view first);

    /// Returns a description of everything that must be the same on all ranks.
    [[nodiscard]] static std::string fingerprint(const Collective& call);

    void post_verdict(const WaitRecord& place, std::string_view verdict);

    /// Compares the calls of the ranks that have arrived. Returns agreed_verdict, or a text that names the
    /// different calls.
    [[nodiscard]] std::string compare(const WaitRecord& here, std::string_view first);

    [[nodiscard]] std::string await(const WaitRecord& here, std::string_view first);

    /// If the program itself waits on this channel, publishes in which call and for which ranks. Returns
    /// whether a wait was published.
    bool publish_wait(const WaitRecord& here);

    /// The last of the channel's calls that a rank has reached.
    struct Arrival {
        std::uint64_t number = 0;
        bool left = false;
    };

    [[nodiscard]] Arrival arrival(std::string_view channel, int rank);

    /// Returns whether the rank has reached the call. A background thread of the rank may be in this call
    /// while the program waits in another call.
    [[nodiscard]] bool has_arrived(int rank, const WaitRecord& place);

    /// Returns a rank that has closed the channel without reaching this call, if there is one.
    [[nodiscard]] std::optional<int> find_departed_rank(const WaitRecord& here);

    [[nodiscard]] PeerLostError peer_lost_error(const WaitRecord& here, int rank);

    [[nodiscard]] WaitRecords read_waiting();

    /// Looks for a cycle of ranks that wait for each other, and posts a verdict if there is a cycle. The
    /// waits are read twice: since calls are numbered, ranks that wait in the same call both times have
    /// waited in that call throughout, unless a verdict on one of the calls has been posted already.
    void detect_deadlock();

    /// Erases the keys of a call. Requires that all ranks have reached the next call.
    void forget(std::uint64_t number);

    std::shared_ptr<ControlPlane> control_;
    std::shared_ptr<CallTracker> tracker_;
    std::shared_ptr<CallerState> caller_;
    Progress progress_;
    std::shared_ptr<Store> store_;
    std::uint64_t calls_ = 0;
};

/// A checked operation on a channel's background thread. While the program waits for it without a timeout,
/// the program counts as waiting on that channel. A wait with a timeout does not count, since the program
/// continues after the timeout.
class CheckedWork final : public WorkState {
  public:
    CheckedWork(std::shared_ptr<WorkState> work, std::shared_ptr<CallChecker> checker);

    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    std::exception_ptr error() override { return work_->error(); }
    std::exception_ptr unreported_error() override { return work_->unreported_error(); }
    [[nodiscard]] int source_rank() const override { return work_->source_rank(); }

  private:
    std::shared_ptr<WorkState> work_;
    std::shared_ptr<CallChecker> checker_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/engine/call_checker.ipp"
#endif
