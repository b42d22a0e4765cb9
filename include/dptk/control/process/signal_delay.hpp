/// SignalDelay, which delays signals while a library computes that uses the stack pointer for other memory.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Delays asynchronous signals while the object exists: to the calling thread, and to the OpenMP threads that
/// compute for it. Their handlers run when the object is destroyed. SIGSEGV and other errors of the thread
/// itself are not delayed, nor are SIGKILL and SIGSTOP. If a thread has several objects, the delay ends when
/// the last of them is destroyed.
///
/// oneDNN before 3.11.2 needs it: its matrix products use the stack pointer for an address in the heap
/// (oneDNN issue 4845). A handler that runs on the interrupted stack then overwrites the program's data.
/// dptk's networks, and Trainer with libtorch, delay signals themselves. A program that calls oneDNN or
/// libtorch from a loop of its own, and handles signals, needs one object for each pass:
///
///     {
///         const dptk::SignalDelay delay;
///         loss = net->forward(batch);
///         loss.backward();
///     }
class SignalDelay {
  public:
    /// Does nothing if the program has loaded a oneDNN that does not need it, or if it runs on another
    /// processor than x86-64.
    SignalDelay() noexcept;
    ~SignalDelay();
    SignalDelay(const SignalDelay&) = delete;
    SignalDelay& operator=(const SignalDelay&) = delete;

    /// Returns whether the loaded oneDNN needs delays; true if its version is unknown.
    [[nodiscard]] static bool is_needed() noexcept;

    /// Ends the delay of signals to the calling thread while the object exists, for a wait within a pass.
    /// Does nothing if there is no SignalDelay on this thread.
    class Pause {
      public:
        Pause() noexcept;
        ~Pause();
        Pause(const Pause&) = delete;
        Pause& operator=(const Pause&) = delete;

      private:
        bool is_paused_;
    };
};

namespace detail {

/// Returns whether the matrix products of this version of oneDNN use the stack pointer for other memory.
[[nodiscard]] constexpr bool onednn_uses_stack_pointer(int major, int minor, int patch) noexcept {
    if (major != 3) return major < 3;
    return minor < 11 || (minor == 11 && patch < 2);
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/signal_delay.ipp"
#endif
