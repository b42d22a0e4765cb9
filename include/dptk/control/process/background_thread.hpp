/// Background threads of dptk. They block all signals, so that the program's signal handlers do not run on
/// them.
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <thread>

#include "dptk/core/config.hpp"

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
[[nodiscard]] std::thread start_background_thread(std::function<void()> function);

/// Runs `function` on a new background thread, and waits for at most `timeout` until `function` returns.
/// Returns whether `function` has returned in time. After the timeout the thread continues to run, so
/// `function` must own the objects that it uses. An exception of `function` is ignored, and counts as its
/// return.
[[nodiscard]] bool run_with_timeout(std::chrono::milliseconds timeout, std::function<void()> function);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/background_thread.ipp"
#endif
