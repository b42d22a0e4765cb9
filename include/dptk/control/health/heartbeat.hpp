/// Heartbeat of each rank: a thread publishes the rank's status in the store once per heartbeat interval and,
/// between heartbeats, waits in the store for the cause of another rank's failure. The interval is a fifth of
/// the heartbeat timeout, but at least 20 ms and at most 1 s. The timeout is set by
/// InitOptions::heartbeat_timeout or DPTK_HEARTBEAT_TIMEOUT (in seconds); the default is 60 s. The heartbeat
/// thread of rank 0 also detects ranks that no longer send heartbeats, ranks that wait for a rank that has
/// left, ranks whose calls differ (by the histories of their calls, also if all calls have ended), and ranks
/// that wait for each other in different groups.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dptk/control/health/call_comparison.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/rank_status.hpp"
#include "dptk/control/process/awake_clock.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

/// Detects lost ranks. Reads only the store; the caller passes the time.
class RankMonitor {
  public:
    using clock = AwakeClock;

    /// `labels` contains the name of each rank, for messages.
    RankMonitor(std::vector<std::string> labels, std::chrono::milliseconds heartbeat_timeout,
                clock::time_point now);

    /// Reads the status of all ranks. Returns why the job must end, or nullopt if the job can continue.
    [[nodiscard]] std::optional<FailureCause> look(Store& store, clock::time_point now);

    [[nodiscard]] bool all_have_left() const;

  private:
    struct Rank {
        clock::time_point heard;
        bool left = false;
        RankStatus status = {};
        /// The number of heartbeats since the last departure of another rank.
        int beats_since_departure = 0;
        /// The number of heartbeats for which the program has waited in the same call.
        int beats_in_call = 0;

        /// Returns the channel in whose call the program waits, or null.
        [[nodiscard]] const ChannelStatus* awaited() const noexcept;
    };

    [[nodiscard]] std::ptrdiff_t count_left() const;

    /// A call is not reported before it has lasted this long: two fifths of the heartbeat timeout, but at
    /// most 1 s.
    [[nodiscard]] std::chrono::milliseconds settled() const noexcept {
        return std::min<std::chrono::milliseconds>(2 * timeout_ / 5, std::chrono::milliseconds(1000));
    }

    void read(Store& store, int index, clock::time_point now);

    /// If a rank has sent no heartbeat for the whole timeout, returns a message that names each rank that has
    /// sent no heartbeat for half the timeout, since the ranks of a host that fails are lost at about the
    /// same time.
    [[nodiscard]] std::optional<FailureCause> find_silent(clock::time_point now) const;

    /// Returns a message if a rank waits in a call for a rank that has left its process group.
    [[nodiscard]] std::optional<FailureCause> find_stuck_rank() const;

    /// Returns a message if two ranks wait in different calls that have the same number in the same group,
    /// and all ranks of the group have come to that number.
    [[nodiscard]] std::optional<FailureCause> find_mismatch() const;

    /// Returns a message if the calls that two ranks have made differ, although they may all have ended. If
    /// the ranks' statuses do not contain the first that differs, asks the ranks for it.
    [[nodiscard]] std::optional<FailureCause> find_earlier_mismatch(Store& store);

    /// Returns a rank's calls, from its reply or from its status.
    [[nodiscard]] std::vector<NumberedCall> calls_of(Store& store, std::size_t rank) const;

    /// Returns a message if ranks wait for each other: each of them in a call that the next one has not
    /// entered, and cannot enter while it waits.
    [[nodiscard]] std::optional<FailureCause> find_cycle() const;

    /// Returns those of the ranks that agree with the fewest others: one that is alone against two.
    template <class Agree>
    [[nodiscard]] std::vector<int> minority(const std::vector<std::size_t>& ranks, Agree&& agree) const {
        std::vector<int> out;
        std::ptrdiff_t least = 0;
        for (const std::size_t rank : ranks) {
            const std::ptrdiff_t count =
                detail::count_if(ranks_, [&](const Rank& other) { return agree(ranks_[rank], other); });
            if (out.empty() || count < least) out.clear();
            if (out.empty()) least = count;
            if (count == least) out.push_back(static_cast<int>(rank));
        }
        return out;
    }

    /// Returns whether rank `waiting` waits in a call for rank `other`, which waits elsewhere.
    [[nodiscard]] bool waits_for(const Rank& waiting, const Rank& other) const;

    std::vector<std::string> labels_;
    std::chrono::milliseconds timeout_;
    std::vector<Rank> ranks_;
    std::optional<CallDifference> difference_;
    int looks_for_calls_ = 0;
};

/// Joins a job: creates a control plane whose heartbeat thread has its own connection to the store. If this
/// process ends without closing its process group, the store reports that to the other ranks. The heartbeat
/// does not delay the end of the program. `options.store` must be used by the ranks of this job only.
[[nodiscard]] std::shared_ptr<ControlPlane> join_control_plane(
    ControlPlaneOptions options, std::shared_ptr<JobState> job_state,
    std::chrono::milliseconds heartbeat_timeout = default_heartbeat_timeout);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/heartbeat.ipp"
#endif
