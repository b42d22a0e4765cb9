/// Background threads of dptk. They block all signals, so that the program's signal handlers do not run on
/// them.
#pragma once

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/detail/thread_kind.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Blocks all signals in the calling thread while the object exists. Threads that the calling thread starts
/// during that time inherit the signal mask.
class AllSignalsBlocked {
  public:
    AllSignalsBlocked();
    ~AllSignalsBlocked();
    AllSignalsBlocked(const AllSignalsBlocked&) = delete;
    AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

  private:
    sigset_t before_;
};

/// Starts a background thread that runs `function`. Throws BackendError if the system cannot start a
/// thread.
template <class Function>
[[nodiscard]] std::thread start_background_thread(Function function) {
    const AllSignalsBlocked blocked;
    try {
        return std::thread([function = std::move(function)]() mutable {
            is_background_thread = true;
            function();
        });
    } catch (const std::system_error& error) {
        throw BackendError(text("cannot start a thread: ", error.what()));
    }
}

/// Runs `function` on a new background thread, and waits for at most `timeout` until `function` returns.
/// Returns whether `function` has returned in time. After the timeout the thread continues to run, so
/// `function` must own the objects that it uses. An exception of `function` is ignored, and counts as its
/// return.
template <class Function>
[[nodiscard]] bool run_with_timeout(std::chrono::milliseconds timeout, Function function) {
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        bool ended = false;
    };
    const auto state = std::make_shared<State>();
    start_background_thread([state, function = std::move(function)]() mutable {
        try {
            function();
        } catch (const std::exception&) {
            // The caller sees that there is no result.
        }
        const std::lock_guard lock(state->mutex);
        state->ended = true;
        state->changed.notify_all();
    }).detach();
    std::unique_lock lock(state->mutex);
    return state->changed.wait_for(lock, timeout, [&] { return state->ended; });
}

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/background_thread.ipp"
#endif
