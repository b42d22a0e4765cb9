/// What happens when an exception is caught by nobody: its text is printed, the other ranks learn it, and the
/// job ends. No destructor runs then, so a chained terminate handler does it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dptk/control/job_health.hpp"
#include "dptk/core/export.hpp"
#include "dptk/core/log.hpp"

namespace dptk {

/// Whoever must hear of it before the process is gone.
class LastWords {
  public:
    virtual ~LastWords() = default;

    /// The rank that speaks.
    [[nodiscard]] virtual int rank() const noexcept = 0;

    /// Called once, on the terminating thread, with "uncaught exception: ...". May end the process.
    virtual void on_terminate(const std::string& message) noexcept = 0;
};

namespace detail {

struct TerminateState {
    std::mutex mutex;
    std::vector<std::weak_ptr<LastWords>> listeners;
    std::terminate_handler previous = nullptr;
    bool installed = false;
};

DPTK_EXPORT inline TerminateState& terminate_state() {
    static TerminateState& state = *new TerminateState;
    return state;
}

[[nodiscard]] inline std::string current_exception_text() {
    const std::exception_ptr exception = std::current_exception();
    if (!exception) return "none; std::terminate was called";
    try {
        std::rethrow_exception(exception);
    } catch (const std::exception& error) {
        return error.what();
    } catch (...) {
        return "of a type that is no std::exception";
    }
}

[[noreturn]] inline void terminate_job() {
    TerminateState& state = terminate_state();
    std::vector<std::shared_ptr<LastWords>> listeners;
    {
        const std::lock_guard lock(state.mutex);
        for (const auto& listener : state.listeners) {
            if (auto alive = listener.lock()) listeners.push_back(std::move(alive));
        }
    }
    if (!listeners.empty()) {
        const std::string message = "uncaught exception: " + current_exception_text();
        log(LogLevel::error, listeners.front()->rank(), message);
        for (const auto& listener : listeners) listener->on_terminate(message);
    }
    if (state.previous != nullptr) state.previous();
    std::abort();
}

}  // namespace detail

/// `listener` will hear of an uncaught exception, in the order of these calls, for as long as it lives.
inline void hear_last_words(const std::shared_ptr<LastWords>& listener) {
    detail::TerminateState& state = detail::terminate_state();
    const std::lock_guard lock(state.mutex);
    std::erase_if(state.listeners, [](const auto& other) { return other.expired(); });
    state.listeners.push_back(listener);
    if (!state.installed) state.previous = std::set_terminate(&detail::terminate_job);
    state.installed = true;
}

}  // namespace dptk
