/// Log messages of dptk, which all go to one sink that a program may replace. The default sink writes lines
/// `[dptk] rank 3: warning: ...` to stderr.
#pragma once

#include <functional>
#include <mutex>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The severity of a message.
enum class LogLevel { info, warning, error };

/// Receives the level, the rank that logs (-1 if no rank is known yet) and one line without its line end.
/// Several threads may call it, but never two at a time. It must not call log() or throw.
using LogSink = std::function<void(LogLevel, int rank, std::string_view message)>;

namespace detail {

struct LogState {
    std::mutex mutex;
    LogSink sink;
};

DPTK_EXPORT inline LogState& log_state() {
    static LogState& state = *new LogState;  // never destroyed: destructors of static objects may still log
    return state;
}

}  // namespace detail

/// Replaces the sink; an empty function restores the default sink.
void set_log_sink(LogSink sink);

/// Passes a message to the sink. Messages of level `info` are dropped on all ranks except rank 0.
void log(LogLevel level, int rank, std::string_view message);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/log.ipp"
#endif
