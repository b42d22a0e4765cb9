/// Threads of dptk's own: the program's signals are not their business, and its handlers do not run on them.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk::detail {

/// A thread that is started while this lives, by this one, never receives the program's signals.
class AllSignalsBlocked {
  public:
    AllSignalsBlocked() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    AllSignalsBlocked(const AllSignalsBlocked&) = delete;
    AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

  private:
    sigset_t before_;
};

/// Throws BackendError where there can be no further thread.
template <class Function>
[[nodiscard]] std::thread start_quiet_thread(Function function) {
    const AllSignalsBlocked blocked;
    try {
        return std::thread(std::move(function));
    } catch (const std::system_error& error) {
        throw BackendError(text("cannot start a thread: ", error.what()));
    }
}

}  // namespace dptk::detail
