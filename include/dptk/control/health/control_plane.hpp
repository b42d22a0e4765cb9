/// The control plane stands beside a group's transport: it knows what every channel of this rank is doing,
/// notices calls that take too long, says for whom they wait, and carries the reason of a failure to all
/// ranks through a store. It works from aside: a call costs it a few stores to memory.
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
#include <vector>

#include "dptk/control/health/call_tracker.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/health/rank_status.hpp"
#include "dptk/control/health/terminate.hpp"
#include "dptk/control/health/watchdog.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Goes on with what the program has started, for a moment; returns whether there is any. Null where all goes
/// on by itself.
using Progress = std::function<bool()>;

/// For how long to wait in a store before progress is due again.
[[nodiscard]] std::chrono::milliseconds make_progress(const Progress& progress);

struct ControlPlaneOptions {
    int rank = 0;
    int size = 1;
    /// Through which the ranks see each other's status; null where they do not, and only deadlines are kept.
    std::shared_ptr<Store> store = nullptr;
    /// Of every call.
    std::chrono::milliseconds timeout = default_timeout;
    /// Who the ranks are, for messages: "host a, process 17". Empty where there is nothing to tell.
    std::vector<std::string> peers = {};
    /// Whether a Heartbeat publishes this rank's status; otherwise the watchdog does, and the store must not
    /// block.
    bool has_heartbeat = false;
    /// Called when the job has failed and a call is still inside a transport that cannot be woken: ends the
    /// process.
    std::function<void(const std::string& cause)> last_resort = {};
    /// Called after the reason has been posted, and before an uncaught exception ends the process.
    std::function<void()> before_terminate = {};
};

class ControlPlane final : public WatchdogTask,
                           public FailureListener,
                           public TerminateListener,
                           public std::enable_shared_from_this<ControlPlane> {
  public:
    using clock = std::chrono::steady_clock;

    /// Under the names of these keys ranks find each other's state in the store.
    [[nodiscard]] static std::string status_key(int rank);
    [[nodiscard]] static std::string left_key(int rank);
    /// There once a rank's heartbeat has ended: the rank knows why the job ends, or is gone itself.
    [[nodiscard]] static std::string ended_key(int rank);
    static constexpr std::string_view abort_key = "abort";

    [[nodiscard]] static std::shared_ptr<ControlPlane> make(ControlPlaneOptions options,
                                                            std::shared_ptr<JobState> job_state);

    [[nodiscard]] int rank() const noexcept override { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] const std::shared_ptr<JobState>& job_state() const noexcept { return job_state_; }
    [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return options_.timeout; }

    /// Whether the ranks see each other's state, as monitored_barrier needs.
    [[nodiscard]] bool has_store() const noexcept { return options_.store != nullptr; }

    /// Null where there is none. Threads that wait in it need a clone.
    [[nodiscard]] const std::shared_ptr<Store>& store() const noexcept { return options_.store; }

    /// "rank 2 (host b, process 17)"
    [[nodiscard]] std::string label(int rank) const;

    /// A channel of this rank begins. Its name is the same on all ranks.
    void open(const std::shared_ptr<CallTracker>& activity);

    /// It ends; when it was the last one, the others learn that this rank will not come again. Does not
    /// throw.
    void close(const std::shared_ptr<CallTracker>& activity) noexcept;

    /// Whether the last channel has closed: what happens to the job is no concern of this rank's any more.
    [[nodiscard]] bool has_left() const noexcept { return left_; }

    /// Whether all is over for a rank that has left: the job has failed since, or its store is gone.
    [[nodiscard]] bool is_over() const noexcept;

    /// What this rank's channels are doing, now.
    [[nodiscard]] RankStatus status(std::uint64_t beat);

    /// Blocks until all ranks of the channel have called it, for at most `timeout`. Then all that have come,
    /// and those that come later, throw a TimeoutError that names every missing rank; it is agreed, and the
    /// group stays usable. Needs has_store(). Collective.
    void monitored_barrier(CallTracker& channel, std::chrono::milliseconds timeout,
                           const Progress& progress = nullptr);

    /// For whom this rank waits in a call on a channel: "not there: rank 1 (host b) is in broadcast(...) #4
    /// for 3.0 s".
    [[nodiscard]] std::string missing_text(const CallTracker& channel, const CallTracker::Snapshot& call);

    DPTK_INLINE void look() noexcept override;

    [[nodiscard]] DPTK_INLINE std::chrono::milliseconds interval() const noexcept override;

    /// The job has failed: tells the other ranks, and the launcher.
    DPTK_INLINE void wake() noexcept override;

    /// Where it has been registered by add_terminate_listener.
    DPTK_INLINE void on_terminate(const std::string& message) noexcept override;

  private:
    struct Channel {
        std::shared_ptr<CallTracker> activity;
        CallTracker::Snapshot seen;
        clock::time_point since;
        bool warned;
    };

    /// How many closed channels the others can still ask about.
    static constexpr std::size_t remembered_channels = 64;
    /// How long a store that cannot be reached may hold this rank up.
    static constexpr std::chrono::milliseconds store_patience{1000};
    /// How long a call may take to end by itself after the job has failed.
    static constexpr std::chrono::milliseconds grace{1000};

    ControlPlane(ControlPlaneOptions options, std::shared_ptr<JobState> job_state);

    static void refresh(Channel& channel, clock::time_point now);

    [[nodiscard]] static std::chrono::milliseconds waited(const Channel& channel, clock::time_point now);

    [[nodiscard]] static std::chrono::milliseconds timeout_of(const Channel& channel);

    [[nodiscard]] static std::chrono::milliseconds patience(const Channel& channel);

    void look_at_channels();

    void complain(const Channel& channel);

    /// The deadline holds whether or not the store can say for whom the call waits.
    [[nodiscard]] std::string missing_or_problem(const Channel& channel);

    void end_what_cannot_be_woken(bool calls_are_inside);

    /// A launcher that tells the rank that failed first from the others names a file for it.
    void leave_note(const std::string& cause) const;

    void publish_status();

    [[nodiscard]] std::optional<RankStatus> read_status(int other);

    [[nodiscard]] static std::string what_it_does(const std::optional<RankStatus>& status);

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
    std::atomic<std::chrono::milliseconds> shortest_timeout_;
    std::mutex mutex_;
    std::vector<Channel> channels_;
    std::vector<ChannelStatus> closed_;
    std::atomic<bool> left_ = false;
    clock::time_point failed_since_ = clock::time_point::max();
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/control_plane.ipp"
#endif
