/// Control plane: sends the text of a failed rank's error to all other ranks through a store (error
/// propagation), enforces the deadlines of calls, and names the ranks that have not entered a call. Runs on
/// background threads beside a group's transport, and knows which call each channel of this rank is in. Each
/// call costs a few atomic writes.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/health/agreed_errors.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/health/program_wait.hpp"
#include "dptk/control/health/rank_status.hpp"
#include "dptk/control/health/terminate.hpp"
#include "dptk/control/health/watchdog.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Advances the program's pending operations; returns whether any are still pending. Null if operations make
/// progress by themselves.
using Progress = std::function<bool()>;

/// Calls `progress`, if it is not null. Returns how long a thread may wait for a key of a store before it
/// must call `progress` again.
[[nodiscard]] std::chrono::milliseconds make_progress(const Progress& progress);

struct ControlPlaneOptions {
    int rank = 0;
    int size = 1;
    /// The store in which ranks publish their status. If it is null, only deadlines are enforced.
    std::shared_ptr<Store> store = nullptr;
    /// The time limit of each call.
    std::chrono::milliseconds timeout = default_timeout;
    /// The process of each rank, for messages: "host a, process 17". May be empty.
    std::vector<std::string> peers = {};
    /// The network interface of this rank's transports: see InitOptions::network_interface. May be empty.
    std::string network_interface = {};
    /// Whether a Heartbeat publishes this rank's status. Otherwise the watchdog publishes it, and the store
    /// must not block.
    bool has_heartbeat = false;
    /// Ends the process. Called when the job has failed and a call is stuck inside a transport that cannot
    /// be interrupted.
    std::function<void(const std::string& cause)> last_resort = {};
    /// Called on an uncaught exception, after the cause has been written to the store and before the process
    /// ends.
    std::function<void()> before_terminate = {};
};

class ControlPlane final : public WatchdogTask,
                           public FailureListener,
                           public TerminateListener,
                           public std::enable_shared_from_this<ControlPlane> {
  public:
    using clock = AwakeClock;

    /// The key of a rank's current status.
    [[nodiscard]] static std::string status_key(int rank);
    /// The key of the last status of a rank that has left its process group.
    [[nodiscard]] static std::string left_key(int rank);
    /// The key that is set when a rank's heartbeat ends, because the rank knows why the job ends or because
    /// the rank is lost.
    [[nodiscard]] static std::string ended_key(int rank);
    /// The key of the cause of failure.
    static constexpr std::string_view abort_key = "abort";

    [[nodiscard]] static std::shared_ptr<ControlPlane> make(ControlPlaneOptions options,
                                                            std::shared_ptr<JobState> job_state);

    [[nodiscard]] int rank() const noexcept override { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] const std::shared_ptr<JobState>& job_state() const noexcept { return job_state_; }
    [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return options_.timeout; }

    /// Returns whether the ranks can read each other's status, which monitored_barrier requires.
    [[nodiscard]] bool has_store() const noexcept { return options_.store != nullptr; }

    /// Returns the store, or null. A thread that blocks in a call of the store must use a clone().
    [[nodiscard]] const std::shared_ptr<Store>& store() const noexcept { return options_.store; }

    /// Returns the network interface that the program has selected for this job; empty if it has not.
    [[nodiscard]] const std::string& network_interface() const noexcept { return options_.network_interface; }

    /// Returns whether a failure of the job ends the calls of its transport. Otherwise last_resort ends them.
    [[nodiscard]] bool is_interruptible() const noexcept { return !options_.last_resort; }

    /// Records that the program, because of an exception, stops waiting for calls that cannot be interrupted.
    /// Returns whether it has not been recorded before.
    [[nodiscard]] bool abandon_calls() noexcept { return !abandons_calls_.exchange(true); }

    /// Returns a description such as "rank 2 (host b, process 17)".
    [[nodiscard]] std::string label(int rank) const;

    /// Registers a channel of this rank. The channel has the same name on all ranks.
    void open(const std::shared_ptr<CallTracker>& tracker);

    /// Unregisters a channel. When the last channel is closed, reports to the other ranks that this rank
    /// has left. Does not throw.
    void close(const std::shared_ptr<CallTracker>& tracker) noexcept;

    /// Looks at the calls at least as often as a call with this time limit requires.
    void look_often(std::chrono::milliseconds timeout) noexcept;

    /// Returns whether this rank has closed its last channel. Later failures of the job do not affect this
    /// rank.
    [[nodiscard]] bool has_left() const noexcept { return left_; }

    /// Returns whether a rank that has left can stop waiting for the other ranks, because the job has failed
    /// or the store is lost.
    [[nodiscard]] bool is_over() const noexcept;

    /// Whether the ranks' heartbeats compare the calls that they have made.
    [[nodiscard]] bool compares_calls() const noexcept { return options_.has_heartbeat; }

    /// Called when a library has failed in a collective, which may be a consequence of calls that differ.
    /// Blocks until rank 0 has found the cause of the job's failure, for at most verdict_timeout, and throws
    /// it. Returns if it is not found, or if the ranks' calls are not compared.
    void throw_verdict() const;

    /// Returns this rank's calls on a channel with numbers in (after, until], as far as its history keeps
    /// them.
    [[nodiscard]] std::vector<NumberedCall> calls(std::string_view channel, std::uint64_t after,
                                                  std::uint64_t until);

    /// The agreed errors of this rank.
    [[nodiscard]] AgreedErrors& agreed_errors() noexcept { return agreed_errors_; }

    /// Runs `fn`. If `fn` throws an agreed error, records the error; if `fn` throws anything else, fails the
    /// job. Rethrows the exception.
    template <class Fn>
    [[gnu::always_inline]] void fail_job_on_error(Fn&& fn) {
        agreed_errors_.note_call();
        try {
            fn();
        } catch (...) {
            rethrow_after_report(*job_state_, agreed_errors_, rank());
        }
    }

    /// Returns where this rank's program waits.
    [[nodiscard]] ProgramWait& program() noexcept { return program_; }

    /// Returns the current status of this rank's channels.
    [[nodiscard]] RankStatus status(std::uint64_t beat);

    /// Notes the training steps of this rank, for others that read its status. Any thread may call it.
    void note_progress(const StepProgress& progress);

    /// Barrier that names the missing ranks when it times out. Blocks until all ranks of the channel have
    /// entered the barrier, for at most `timeout`. If ranks are missing then, the ranks that have entered the
    /// barrier, and those that enter it later, throw a TimeoutError that names the missing ranks. The error
    /// is agreed, so that the group stays usable. Requires has_store(). Collective.
    void monitored_barrier(CallTracker& channel, std::chrono::milliseconds timeout,
                           const Progress& progress = nullptr);

    /// Returns the ranks that this rank waits for in a call on a channel, with a text: "missing: rank 1 (host
    /// b) has been in broadcast(...) #4 for 3.0 s".
    [[nodiscard]] FailureCause find_missing(const CallTracker& channel, const CallTracker::Snapshot& call);

    DPTK_INLINE void look() noexcept override;

    [[nodiscard]] DPTK_INLINE std::chrono::milliseconds interval() const noexcept override;

    /// Called when the job has failed: reports the cause to the other ranks and to the launcher.
    DPTK_INLINE void wake() noexcept override;

    [[nodiscard]] bool has_logged(const std::string& message) const noexcept override {
        return job_state_->has_logged(message);
    }

    /// Called on an uncaught exception, if this object was registered with add_terminate_listener.
    DPTK_INLINE void on_terminate(const std::string& message) noexcept override;

  private:
    struct Channel {
        std::shared_ptr<CallTracker> tracker;
        CallTracker::Snapshot seen;
        clock::time_point since;
        bool warned;
    };

    /// The number of closed channels that remain in the published status.
    static constexpr std::size_t remembered_channels = 64;
    /// The number of calls of each channel in the published status, and of closed channels with calls.
    static constexpr std::uint64_t published_calls = 8;
    static constexpr std::size_t channels_with_calls = 4;
    /// How long this rank waits for a store that cannot be reached.
    static constexpr std::chrono::milliseconds store_timeout{1000};
    /// Rank 0 finds calls that differ within four heartbeats.
    static constexpr std::chrono::milliseconds verdict_timeout{6000};
    /// How long a call may take to return by itself after the job has failed.
    static constexpr std::chrono::milliseconds grace{1000};

    ControlPlane(ControlPlaneOptions options, std::shared_ptr<JobState> job_state);

    static void refresh(Channel& channel, clock::time_point now);

    [[nodiscard]] static std::vector<NumberedCall> calls_of(const CallTracker& tracker, std::uint64_t after,
                                                            std::uint64_t until);

    /// Adds marks and the most recent calls to a status.
    static void add_history(ChannelStatus& status, const CallTracker& tracker,
                            const CallTracker::Snapshot& now);

    [[nodiscard]] static std::chrono::milliseconds waited(const Channel& channel, clock::time_point now);

    [[nodiscard]] static std::chrono::milliseconds timeout_of(const Channel& channel);

    [[nodiscard]] static std::chrono::milliseconds warning_delay(const Channel& channel);

    void look_at_channels();

    void report_late_call(const Channel& channel);

    /// Returns find_missing(), or why the ranks cannot be obtained from the store. Waits for the store for at
    /// most store_timeout, so that the deadline of the call holds even if the store does not answer.
    [[nodiscard]] FailureCause missing_or_problem(const Channel& channel);

    void run_last_resort_if_stuck(bool calls_are_inside);

    /// Writes the failure report that a launcher reads to find the rank that failed first.
    void write_report(const FailureCause& cause);

    /// Sends a cause that this rank has found to the other ranks. Waits for the store for at most
    /// store_timeout.
    void post(const FailureCause& cause) const;

    void publish_status();

    [[nodiscard]] std::optional<RankStatus> read_status(int other);

    template <class Missing>
    std::string await_verdict(Store& store, const std::string& key, std::chrono::milliseconds timeout,
                              const Progress& progress, Missing&& missing) {
        const Deadline deadline(timeout);
        while (!deadline.passed()) {
            job_state_->check();
            try {
                return store.get(key, std::min(deadline.left(), make_progress(progress)));
            } catch (const TimeoutError&) {
            }
        }
        return store.compare_and_set(key, "", missing());
    }

    ControlPlaneOptions options_;
    std::shared_ptr<JobState> job_state_;
    AgreedErrors agreed_errors_;
    ProgramWait program_;
    std::atomic<std::chrono::milliseconds> shortest_timeout_;
    std::mutex report_mutex_;
    bool is_reported_ = false;
    std::mutex mutex_;
    std::vector<Channel> channels_;
    std::vector<ChannelStatus> closed_;
    StepProgress progress_;
    std::atomic<bool> left_ = false;
    std::atomic<bool> abandons_calls_ = false;
    clock::time_point failed_since_ = clock::time_point::max();
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/control_plane.ipp"
#endif
