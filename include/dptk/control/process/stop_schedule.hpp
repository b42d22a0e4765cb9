/// Stop schedule: when the ranks of a failed job receive SIGTERM, and when they are killed. A state machine
/// that neither sends signals nor sleeps; its owner passes the time and carries out the action that is due.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "dptk/control/process/awake_clock.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// How long ranks may take to end after they were asked to, unless --shutdown-timeout of dptk-run or
/// DPTK_SHUTDOWN_TIMEOUT is set: long enough to write a checkpoint.
inline constexpr std::chrono::milliseconds default_shutdown_timeout = std::chrono::seconds(30);

class StopSchedule {
  public:
    using Time = AwakeClock::time_point;

    /// How long other ranks have after the first failure to report why they fail, and to end by themselves.
    static constexpr std::chrono::milliseconds settling_time{2000};
    enum class Action { none, ask, kill };

    explicit StopSchedule(std::chrono::milliseconds shutdown_timeout) : shutdown_timeout_(shutdown_timeout) {}

    /// Records that a rank has failed: schedules the action `ask` after the settling time.
    void failure(Time now);

    /// Schedules the action `ask` for now.
    void stop(Time now);

    /// Schedules the action `kill` for now.
    void kill(Time now);

    /// Returns the action that is due now. Each action is returned once.
    [[nodiscard]] Action due(Time now);

    /// Returns when the next action is due, or nullopt.
    [[nodiscard]] std::optional<Time> deadline() const;

    /// Returns whether the ranks have been asked to end, or killed.
    [[nodiscard]] bool asked() const { return state_ == State::asked || state_ == State::killed; }

    [[nodiscard]] bool killed() const { return state_ == State::killed; }

  private:
    static constexpr Time never = Time::max();

    enum class State { idle, settling, asked, killed };

    void set(State state, Time deadline);

    std::chrono::milliseconds shutdown_timeout_;
    State state_ = State::idle;
    Time deadline_ = never;
};

/// Returns "killed rank 0, rank 2", for a message.
[[nodiscard]] std::string killed_text(const std::vector<int>& ranks);

/// Returns why ranks were killed at the end of the shutdown timeout: "still running 30 s after SIGTERM
/// (...)", with the name of the setting that changes the timeout.
[[nodiscard]] std::string still_running_text(std::chrono::milliseconds shutdown_timeout, int signal,
                                             const char* setting);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/stop_schedule.ipp"
#endif
