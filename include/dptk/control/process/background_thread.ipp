#pragma once

#include "dptk/control/process/background_thread.hpp"

#include <pthread.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

#include "dptk/control/process/deadline.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/detail/thread_kind.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE AllSignalsBlocked::AllSignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

DPTK_INLINE AllSignalsBlocked::~AllSignalsBlocked() {
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

DPTK_INLINE std::thread start_background_thread(std::function<void()> function) {
    const AllSignalsBlocked blocked;
    try {
        return std::thread([function = std::move(function)] {
            is_background_thread = true;
            function();
        });
    } catch (const std::system_error& error) {
        throw BackendError(text("cannot start a thread: ", error.what()));
    }
}

DPTK_INLINE bool run_with_timeout(std::chrono::milliseconds timeout, std::function<void()> function) {
    struct State {
        std::function<void()> function;
        std::mutex mutex;
        std::condition_variable changed;
        bool ended = false;
    };
    const auto state = std::make_shared<State>();
    state->function = std::move(function);
    start_background_thread([state] {
        try {
            // Its objects end with the function, and not with the caller's wait.
            std::exchange(state->function, {})();
        } catch (const std::exception&) {
            // The caller sees that there is no result.
        }
        const std::lock_guard lock(state->mutex);
        state->ended = true;
        state->changed.notify_all();
    }).detach();
    std::unique_lock lock(state->mutex);
    return Deadline(timeout).wait(state->changed, lock, [&] { return state->ended; });
}

}  // namespace DPTK_NAMESPACE::detail
