/// Stop schedule: when the ranks of a failed job receive SIGTERM, and when they are killed. A state machine
/// that neither sends signals nor sleeps; its owner passes the time and carries out the action that is due.
#pragma once

#include <chrono>
#include <optional>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class StopSchedule {
  public:
    using Time = std::chrono::steady_clock::time_point;

    /// How long other ranks have after the first failure to report why they fail, and to end by themselves.
    static constexpr std::chrono::milliseconds settling_time{2000};
    /// How long ranks may clean up after they were asked to end.
    static constexpr std::chrono::seconds grace{3};

    enum class Action { none, ask, kill };

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

    State state_ = State::idle;
    Time deadline_ = never;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/stop_schedule.ipp"
#endif
