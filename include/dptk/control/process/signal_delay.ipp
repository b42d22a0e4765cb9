#pragma once

#include "dptk/control/process/signal_delay.hpp"

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

#include "dptk/core/detail/openmp.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// The signals that SignalDelay delays: all that do not report an error of the thread itself.
[[nodiscard]] inline const sigset_t& delayed_signals() noexcept {
    static const sigset_t signals = [] {
        sigset_t set;
        ::sigfillset(&set);
        for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
            ::sigdelset(&set, signal);
        return set;
    }();
    return signals;
}

/// Whether this thread delays signals, and its mask before.
struct ThreadSignals {
    bool are_delayed;
    sigset_t mask_before;
};

inline thread_local ThreadSignals thread_signals{};
/// The number of SignalDelay objects of this thread.
inline thread_local int signal_delays = 0;

/// Delays signals to the calling thread. The argument is not used: the OpenMP runtime calls it.
inline void delay_signals(void*) noexcept {
    ThreadSignals& own = thread_signals;
    if (own.are_delayed) return;
    ::pthread_sigmask(SIG_BLOCK, &delayed_signals(), &own.mask_before);
    own.are_delayed = true;
}

inline void restore_signals(void*) noexcept {
    ThreadSignals& own = thread_signals;
    if (!own.are_delayed) return;
    own.are_delayed = false;
    ::pthread_sigmask(SIG_SETMASK, &own.mask_before, nullptr);
}

}  // namespace detail

DPTK_INLINE bool SignalDelay::is_needed() noexcept {
#ifdef __x86_64__
    struct Version {
        int major, minor, patch;
    };
    static const bool needed = [] {
        const auto version = detail::OpenMp::find<const Version*()>("dnnl_version");
        if (version == nullptr) return true;
        const Version& found = *version();
        return detail::onednn_uses_stack_pointer(found.major, found.minor, found.patch);
    }();
    return needed;
#else
    return false;
#endif
}

DPTK_INLINE SignalDelay::SignalDelay() noexcept {
    if (is_needed() && detail::signal_delays++ == 0)
        detail::OpenMp::runtime().on_team(detail::delay_signals, nullptr);
}

DPTK_INLINE SignalDelay::~SignalDelay() {
    if (is_needed() && --detail::signal_delays == 0)
        detail::OpenMp::runtime().on_team(detail::restore_signals, nullptr);
}

DPTK_INLINE SignalDelay::Pause::Pause() noexcept : is_paused_(detail::thread_signals.are_delayed) {
    if (is_paused_) detail::restore_signals(nullptr);
}

DPTK_INLINE SignalDelay::Pause::~Pause() {
    if (is_paused_) detail::delay_signals(nullptr);
}

}  // namespace DPTK_NAMESPACE
