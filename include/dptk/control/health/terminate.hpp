/// What happens when an exception is caught by nobody: its text is printed, the other ranks learn it, and the
/// job ends. No destructor runs then, so a chained terminate handler does it.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Whoever must hear of it before the process is gone.
class TerminateListener {
  public:
    virtual ~TerminateListener() = default;

    /// The rank that speaks.
    [[nodiscard]] virtual int rank() const noexcept = 0;

    /// Called once, on the terminating thread, with "uncaught exception: ...". May end the process.
    virtual void on_terminate(const std::string& message) noexcept = 0;
};

struct TerminateState {
    std::mutex mutex;
    std::vector<std::weak_ptr<TerminateListener>> listeners;
    std::terminate_handler previous = nullptr;
    bool installed = false;
};

DPTK_EXPORT inline TerminateState& terminate_state() {
    static TerminateState& state = *new TerminateState;
    return state;
}

/// `listener` will hear of an uncaught exception, in the order of these calls, for as long as it lives.
void add_terminate_listener(const std::shared_ptr<TerminateListener>& listener);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/terminate.ipp"
#endif
