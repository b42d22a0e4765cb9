/// What dptk has to say goes through one sink, which a program may replace. The default writes lines
/// `[dptk] rank 3: warning: ...` to stderr.
#pragma once

#include <functional>
#include <mutex>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// How much a message matters.
enum class LogLevel { info, warning, error };

/// Gets the level, the rank that speaks (-1 where no rank is known yet) and one line without its end.
/// May be called from several threads, one at a time. Must not call
/// log itself, nor throw.
using LogSink = std::function<void(LogLevel, int rank, std::string_view message)>;

namespace detail {

struct LogState {
    std::mutex mutex;
    LogSink sink;
};

DPTK_EXPORT inline LogState& log_state() {
    static LogState& state = *new LogState;  // never destroyed: destructors of statics may still log
    return state;
}

}  // namespace detail

/// Replaces the sink; an empty one restores the default.
void set_log_sink(LogSink sink);

/// Information comes from rank 0 alone, warnings and errors from any rank.
void log(LogLevel level, int rank, std::string_view message);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/log.ipp"
#endif
