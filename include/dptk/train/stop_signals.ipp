#pragma once

#include "dptk/train/stop_signals.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iterator>
#include <mutex>

#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

inline constexpr int stop_signals[] = {SIGTERM, SIGINT, SIGUSR1};

inline std::atomic<int> received_signal = 0;
inline std::atomic<unsigned> grace_seconds = 0;
inline std::mutex stop_signals_mutex;
inline int stop_signals_objects = 0;
inline struct sigaction actions_before[std::size(stop_signals)], alarm_before;

/// Ends the program as the signal does without a handler.
inline void end_by(int signal) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // takes effect when the handler of this signal returns
}

extern "C" inline void note_signal(int signal) {
    if (received_signal.exchange(signal) != 0) return end_by(signal);
    if (grace_seconds != 0) alarm(grace_seconds);
}

extern "C" inline void end_after_grace_time(int) {
    end_by(received_signal != 0 ? received_signal.load() : SIGALRM);
}

}  // namespace detail

DPTK_INLINE StopSignals::StopSignals() {
    const std::lock_guard lock(detail::stop_signals_mutex);
    if (detail::stop_signals_objects++ > 0) return;
    detail::received_signal = 0;
    struct sigaction action {};
    action.sa_handler = detail::note_signal;
    action.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < std::size(detail::stop_signals); ++i)
        sigaction(detail::stop_signals[i], &action, &detail::actions_before[i]);
}

DPTK_INLINE StopSignals::~StopSignals() {
    const std::lock_guard lock(detail::stop_signals_mutex);
    if (--detail::stop_signals_objects > 0) return;
    set_grace_time(std::chrono::seconds(0));
    for (std::size_t i = 0; i < std::size(detail::stop_signals); ++i)
        sigaction(detail::stop_signals[i], &detail::actions_before[i], nullptr);
}

DPTK_INLINE void StopSignals::set_grace_time(std::chrono::seconds time) noexcept {
    const unsigned before = detail::grace_seconds.exchange(static_cast<unsigned>(time.count()));
    struct sigaction action {};
    action.sa_handler = detail::end_after_grace_time;
    if (before == 0 && time.count() > 0) sigaction(SIGALRM, &action, &detail::alarm_before);
    if (before > 0 && time.count() == 0) {
        alarm(0);
        sigaction(SIGALRM, &detail::alarm_before, nullptr);
    }
}

DPTK_INLINE int StopSignals::received() noexcept {
    return detail::received_signal;
}

DPTK_INLINE int StopSignals::received_by_any(ProcessGroup& group) {
    return group.all_reduce_value<int>(received(), ReduceOp::max);
}

DPTK_INLINE std::string signal_name(int signal) {
    switch (signal) {
        case SIGTERM: return "SIGTERM";
        case SIGINT: return "SIGINT";
        case SIGUSR1: return "SIGUSR1";
        default: return detail::text("signal ", signal);
    }
}

DPTK_INLINE void StopOnSignal::check(TrainingRun& run) {
    const int signal = StopSignals::received_by_any(run.group());
    if (signal != 0 && run.status().stop_reason.empty()) run.stop("received " + signal_name(signal));
}

}  // namespace DPTK_NAMESPACE
