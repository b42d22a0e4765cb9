/// Threads of dptk's own: the program's signals are not their business, and its handlers do not run on them.
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
#include "dptk/core/detail/own_thread.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// A thread that is started while this lives, by this one, never receives the program's signals.
class AllSignalsBlocked {
  public:
    AllSignalsBlocked();
    ~AllSignalsBlocked();
    AllSignalsBlocked(const AllSignalsBlocked&) = delete;
    AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

  private:
    sigset_t before_;
};

/// Throws BackendError where there can be no further thread.
template <class Function>
[[nodiscard]] std::thread start_background_thread(Function function) {
    const AllSignalsBlocked blocked;
    try {
        return std::thread([function = std::move(function)]() mutable {
            is_own_thread = true;
            function();
        });
    } catch (const std::system_error& error) {
        throw BackendError(text("cannot start a thread: ", error.what()));
    }
}

/// Runs `function` on a thread of its own, and waits for it for at most `patience`. Returns whether it has
/// ended by then; it goes on in any case, and so owns what it touches. An exception ends it.
template <class Function>
[[nodiscard]] bool run_with_timeout(std::chrono::milliseconds patience, Function function) {
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
            // Whoever waits gets no result.
        }
        const std::lock_guard lock(state->mutex);
        state->ended = true;
        state->changed.notify_all();
    }).detach();
    std::unique_lock lock(state->mutex);
    return state->changed.wait_for(lock, patience, [&] { return state->ended; });
}

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/background_thread.ipp"
#endif
