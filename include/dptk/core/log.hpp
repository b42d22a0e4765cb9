/// What dptk has to say goes through one sink, which a program may replace. The default writes lines
/// `[dptk] rank 3: warning: ...` to stderr.
#pragma once

#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "dptk/core/export.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

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

inline void write_log_line(LogLevel level, int rank, std::string_view message) {
    std::string line = "[dptk] ";
    if (rank >= 0) line += text("rank ", rank, ": ");
    if (level == LogLevel::warning) line += "warning: ";
    if (level == LogLevel::error) line += "error: ";
    line += message;
    line += '\n';
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
}

}  // namespace detail

/// Replaces the sink; an empty one restores the default.
inline void set_log_sink(LogSink sink) {
    detail::LogState& state = detail::log_state();
    const std::lock_guard lock(state.mutex);
    state.sink = std::move(sink);
}

/// Information comes from rank 0 alone, warnings and errors from any rank.
inline void log(LogLevel level, int rank, std::string_view message) {
    if (level == LogLevel::info && rank > 0) return;
    detail::LogState& state = detail::log_state();
    const std::lock_guard lock(state.mutex);
    if (state.sink) {
        state.sink(level, rank, message);
    } else {
        detail::write_log_line(level, rank, message);
    }
}

}  // namespace dptk
