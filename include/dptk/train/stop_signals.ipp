#pragma once

#include "dptk/train/stop_signals.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <mutex>
#include <string_view>

#include "dptk/control/process/signal_stack.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

inline constexpr int stop_signals[] = {SIGTERM, SIGINT, SIGUSR1};

inline std::atomic<int> received_signal = 0;
inline std::atomic<bool> notes_signals = false;      // otherwise the first one ends the program
inline std::atomic<bool> announces_signals = false;  // whether rank 0 is in this process
inline std::atomic<unsigned> grace_seconds = 0;
inline std::mutex stop_signals_mutex;
inline int stop_signals_objects = 0;
inline struct sigaction actions_before[std::size(stop_signals)], alarm_before;

/// Returns the name of one of stop_signals, or nothing.
[[nodiscard]] constexpr std::string_view name_of_signal(int signal) noexcept {
    switch (signal) {
        case SIGTERM: return "SIGTERM";
        case SIGINT: return "SIGINT";
        case SIGUSR1: return "SIGUSR1";
        default: return {};
    }
}

/// Ends the program as the signal does without a handler.
inline void end_by(int signal) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // takes effect when the handler of this signal returns
}

/// Writes to stderr what happens next. Uses only functions that a signal handler may call.
inline void announce(int signal) noexcept {
    const auto write = [](std::string_view text) {
        return ::write(STDERR_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    };
    const std::string_view name = name_of_signal(signal);
    static_cast<void>(write("[dptk] rank 0: received ") && write(name) &&
                      write(": ending after this step; again to end at once\n"));
}

extern "C" inline void note_signal(int signal) {
    const int error = errno;
    if (!notes_signals || received_signal.exchange(signal) != 0) return end_by(signal);
    if (announces_signals) announce(signal);
    if (grace_seconds != 0) alarm(grace_seconds);
    errno = error;
}

extern "C" inline void end_after_grace_time(int) {
    end_by(received_signal != 0 ? received_signal.load() : SIGALRM);
}

}  // namespace detail

DPTK_INLINE StopSignals::StopSignals() {
    detail::use_signal_stack();
    const std::lock_guard lock(detail::stop_signals_mutex);
    if (detail::stop_signals_objects++ > 0) return;
    detail::received_signal = 0;
    detail::notes_signals = detail::announces_signals = false;
    struct sigaction action {};
    action.sa_handler = detail::note_signal;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
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
    action.sa_flags = SA_ONSTACK;
    if (before == 0 && time.count() > 0) sigaction(SIGALRM, &action, &detail::alarm_before);
    if (before > 0 && time.count() == 0) {
        alarm(0);
        sigaction(SIGALRM, &detail::alarm_before, nullptr);
    }
}

DPTK_INLINE int StopSignals::received() noexcept {
    detail::notes_signals = true;
    return detail::received_signal;
}

DPTK_INLINE int StopSignals::received_by_any(ProcessGroup& group) {
    note_from_now_on(group.rank());
    return group.all_reduce_value<int>(received(), ReduceOp::max);
}

DPTK_INLINE void StopSignals::note_from_now_on(int rank) noexcept {
    detail::notes_signals = true;
    if (rank == 0) detail::announces_signals = true;
}

DPTK_INLINE std::string signal_name(int signal) {
    const std::string_view name = detail::name_of_signal(signal);
    return name.empty() ? detail::text("signal ", signal) : std::string(name);
}

DPTK_INLINE void StopOnSignal::check_elastic(TrainingRun& run) {
    ProcessGroup& group = run.group();
    const int own = StopSignals::received();
    const int ranks = group.all_reduce_value<int>(own != 0 ? 1 : 0);
    if (ranks == group.size()) return stop(run, StopSignals::received_by_any(group));
    if (own != 0)
        throw Error(detail::text("received ", signal_name(own), ": this rank leaves its elastic job"));
}

DPTK_INLINE void StopOnSignal::stop(TrainingRun& run, int signal) {
    if (run.status().stop_reason.empty()) run.stop("received " + signal_name(signal));
}

DPTK_INLINE void StopOnSignal::check(TrainingRun& run) {
    if (run.group().is_elastic()) return check_elastic(run);
    const int signal = StopSignals::received_by_any(run.group());
    if (signal != 0) stop(run, signal);
}

}  // namespace DPTK_NAMESPACE
