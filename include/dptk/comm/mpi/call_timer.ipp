#pragma once

#include "dptk/comm/mpi/call_timer.hpp"

#include <algorithm>
#include <cstdlib>

#include "dptk/control/launch/job_request.hpp"
#include "dptk/control/process/background_thread.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns what the launcher's variables say, for messages only: contradictions are reported elsewhere.
[[nodiscard]] DPTK_INLINE LaunchEnvironment launch_for_messages() {
    try {
        return read_launch_environment();
    } catch (const Error&) {
        return {};
    }
}

DPTK_INLINE MpiCallTimer::MpiCallTimer(const char* call)
    : call_(call),
      timeout_(environment_seconds("DPTK_TIMEOUT").value_or(default_timeout)),
      launch_(launch_for_messages()),  // before MPI_Init, which may change the environment
      thread_(start_background_thread([this] { run(); })) {}

DPTK_INLINE MpiCallTimer::~MpiCallTimer() {
    {
        const std::lock_guard lock(mutex_);
        ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

DPTK_INLINE void MpiCallTimer::run() {
    const auto ended = [this] { return ended_; };
    const Deadline deadline(timeout_);
    std::unique_lock lock(mutex_);
    const auto warning = std::min<std::chrono::milliseconds>(timeout_ / 2, std::chrono::minutes(1));
    if (Deadline(warning).wait(changed_, lock, ended)) return;
    const std::string ranks =
        launch_.world_size > 1 ? text(" (", launch_.world_size, " ranks)") : std::string();
    log(LogLevel::warning, launch_.rank,
        text("has waited for ", duration_text(warning), " in ", call_, " for the other ranks", ranks,
             ": a rank has ended, is stopped, or has not reached ", call_));
    if (deadline.wait(changed_, lock, ended)) return;
    log(LogLevel::error, launch_.rank,
        text("ends the process: ", call_, " has not returned within ", duration_text(timeout_)));
    std::_Exit(EXIT_FAILURE);
}

}  // namespace DPTK_NAMESPACE::detail
