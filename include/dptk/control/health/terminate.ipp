#pragma once

#include "dptk/control/health/terminate.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] DPTK_INLINE std::string current_exception_text() {
    const std::exception_ptr exception = std::current_exception();
    if (!exception) return "none; std::terminate was called";
    try {
        std::rethrow_exception(exception);
    } catch (const std::exception& error) {
        return error.what();
    } catch (...) {
        return "of a type that is not derived from std::exception";
    }
}

[[noreturn]] DPTK_INLINE void terminate_job() {
    TerminateState& state = terminate_state();
    std::vector<std::shared_ptr<TerminateListener>> listeners;
    {
        const std::lock_guard lock(state.mutex);
        for (const TerminateState::Entry& entry : state.listeners) {
            if (entry.fork_guard.is_in_child()) continue;
            if (auto alive = entry.listener.lock()) listeners.push_back(std::move(alive));
        }
    }
    if (!listeners.empty()) {
        const std::string message = "uncaught exception: " + current_exception_text();
        const auto has_logged = [&](const auto& listener) { return listener->has_logged(message); };
        if (detail::none_of(listeners, has_logged)) log(LogLevel::error, listeners.front()->rank(), message);
        for (const auto& listener : listeners) listener->on_terminate(message);
    }
#ifdef __GLIBCXX__
    // The default handler would print the same text again.
    if (state.previous == &__gnu_cxx::__verbose_terminate_handler && !listeners.empty()) std::abort();
#endif
    if (state.previous != nullptr) state.previous();
    std::abort();
}

DPTK_INLINE FailureCause uncaught_cause(int rank, const std::string& message) {
    FailureCause cause{text("rank ", rank, ": ", message)};
    try {
        if (const std::exception_ptr exception = std::current_exception()) std::rethrow_exception(exception);
    } catch (const Error& error) {
        cause.is_agreed = error.agreed();
        if (cause.is_agreed && error.rank()) cause.ranks.push_back(*error.rank());
        if (!cause.is_agreed && error.peer()) cause.ranks.push_back(*error.peer());
    } catch (...) {
        // Only errors of dptk say more than their text.
    }
    return cause;
}

DPTK_INLINE void add_terminate_listener(const std::shared_ptr<TerminateListener>& listener) {
    TerminateState& state = terminate_state();
    const std::lock_guard lock(state.mutex);
    detail::erase_if(state.listeners, [](const auto& other) { return other.listener.expired(); });
    state.listeners.push_back({listener});
    if (!state.installed) state.previous = std::set_terminate(&terminate_job);
    state.installed = true;
}

}  // namespace DPTK_NAMESPACE::detail
