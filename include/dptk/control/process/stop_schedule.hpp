/// When the ranks of a job that fails are asked to end, and when they are killed. A clock without hands: it
/// sends nothing and sleeps nowhere, its owner asks it what is due.
#pragma once

#include <chrono>
#include <optional>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class StopSchedule {
  public:
    using Time = std::chrono::steady_clock::time_point;

    /// For so long after the first failure others are waited for that failed at the same time.
    static constexpr std::chrono::milliseconds settling_time{200};
    /// For so long ranks may clean up after they were asked to end.
    static constexpr std::chrono::seconds grace{3};

    enum class Action { none, ask, kill };

    /// A rank has failed: the others are asked to end when the settling time is over.
    void failure(Time now);

    /// The ranks are asked to end now.
    void stop(Time now);

    /// The ranks are killed now.
    void kill(Time now);

    /// What is to be done now; each action is returned once.
    [[nodiscard]] Action due(Time now);

    /// When due() has something to do next.
    [[nodiscard]] std::optional<Time> deadline() const;

    /// Whether the ranks have been asked to end, or killed.
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
