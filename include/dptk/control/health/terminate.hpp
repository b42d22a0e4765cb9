/// Terminate handler: on an uncaught exception, logs the text of the exception, reports the text to the other
/// ranks, and ends the job. Destructors do not run then. The previously installed handler is called
/// afterwards.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dptk/control/health/failure_report.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Interface of objects that are notified of an uncaught exception before the process ends.
class TerminateListener {
  public:
    virtual ~TerminateListener() = default;

    /// Returns the rank that is named in the log.
    [[nodiscard]] virtual int rank() const noexcept = 0;

    /// Returns whether this process has already logged the cause that the message repeats.
    [[nodiscard]] virtual bool has_logged(const std::string& /*message*/) const noexcept { return false; }

    /// Called once, on the terminating thread, with "uncaught exception: ...". May end the process.
    virtual void on_terminate(const std::string& message) noexcept = 0;
};

struct TerminateState {
    struct Entry {
        std::weak_ptr<TerminateListener> listener;
        ForkGuard fork_guard = {};
    };

    std::mutex mutex;
    std::vector<Entry> listeners;
    std::terminate_handler previous = nullptr;
    bool installed = false;
};

DPTK_EXPORT inline TerminateState& terminate_state() {
    static TerminateState& state = *new TerminateState;
    return state;
}

/// Returns the current exception, which nobody has caught, as a cause. `message` is what on_terminate()
/// receives.
[[nodiscard]] FailureCause uncaught_cause(int rank, const std::string& message);

/// Registers `listener`, which is notified of an uncaught exception if the listener still exists at that
/// time, except in a forked child. Listeners are notified in the order of registration.
void add_terminate_listener(const std::shared_ptr<TerminateListener>& listener);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/terminate.ipp"
#endif
