#pragma once

#include "dptk/control/process/stop_schedule.hpp"

#include "dptk/control/process/child_process.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void StopSchedule::failure(Time now) {
    if (state_ == State::idle) set(State::settling, now + settling_time);
}

DPTK_INLINE void StopSchedule::stop(Time now) {
    if (state_ == State::idle || state_ == State::settling) set(State::settling, now);
}

DPTK_INLINE void StopSchedule::kill(Time now) {
    if (state_ != State::killed) set(State::asked, now);
}

DPTK_INLINE StopSchedule::Action StopSchedule::due(Time now) {
    if (now < deadline_) return Action::none;
    if (state_ == State::settling) {
        set(State::asked, now + shutdown_timeout_);
        return Action::ask;
    }
    state_ = State::killed;
    deadline_ = never;
    return Action::kill;
}

DPTK_INLINE std::optional<StopSchedule::Time> StopSchedule::deadline() const {
    return deadline_ == never ? std::nullopt : std::optional(deadline_);
}

DPTK_INLINE void StopSchedule::set(State state, Time deadline) {
    state_ = state;
    deadline_ = deadline;
}

DPTK_INLINE std::string killed_text(const std::vector<int>& ranks) {
    std::string out = "killed";
    for (const int rank : ranks) out += text(rank == ranks.front() ? " rank " : ", rank ", rank);
    return out;
}

DPTK_INLINE std::string still_running_text(std::chrono::milliseconds shutdown_timeout, int signal,
                                           const char* setting) {
    return text("still running ", duration_text(shutdown_timeout), " after ", signal_name(signal), " (",
                setting, ")");
}

}  // namespace DPTK_NAMESPACE::detail
