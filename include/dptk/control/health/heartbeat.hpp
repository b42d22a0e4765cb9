/// The heartbeat of a rank: a thread that tells the store what the rank is doing, and listens there for the
/// reason of another rank's failure. That of rank 0 also judges who is silent, and who is waited for in vain.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/rank_status.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Finds the ranks that are lost. Works on the store alone; times come from the caller.
class RankMonitor {
  public:
    using clock = std::chrono::steady_clock;

    /// `labels` are the ranks as messages name them.
    RankMonitor(std::vector<std::string> labels, std::chrono::milliseconds heartbeat_timeout,
                clock::time_point now);

    /// Reads all ranks' states. Returns why the job must end, or nothing while all is well.
    [[nodiscard]] std::optional<std::string> look(Store& store, clock::time_point now);

    [[nodiscard]] bool all_have_left() const;

  private:
    struct Rank {
        clock::time_point heard;
        bool left = false;
        RankStatus status = {};
        /// Since another rank was last seen to have left.
        int beats_since_farewell = 0;
    };

    [[nodiscard]] std::ptrdiff_t count_left() const;

    void read(Store& store, int index, clock::time_point now, bool slept);

    /// All that are silent, once one of them has been so for the whole time: a host takes several ranks
    /// along.
    [[nodiscard]] std::optional<std::string> find_silent(clock::time_point now) const;

    /// A rank that has left cannot come to a call that others are in.
    [[nodiscard]] std::optional<std::string> find_stuck_rank() const;

    std::vector<std::string> labels_;
    std::chrono::milliseconds timeout_;
    std::vector<Rank> ranks_;
    clock::time_point last_look_;
};

/// Joins a job: a control plane whose rank beats on a connection of its own, and whose end without a farewell
/// is told to the others. The heartbeat does not keep the program from ending. `store` sees all ranks of this
/// job and nobody else.
[[nodiscard]] std::shared_ptr<ControlPlane> join_control_plane(
    ControlPlaneOptions options, std::shared_ptr<JobState> job_state,
    std::chrono::milliseconds heartbeat_timeout = default_heartbeat_timeout);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/heartbeat.ipp"
#endif
