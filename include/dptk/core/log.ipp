#pragma once

#include "dptk/core/log.hpp"

#include <cstdio>
#include <string>
#include <utility>

#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void write_log_line(LogLevel level, int rank, std::string_view message) {
    std::string line = "[dptk] ";
    if (rank >= 0) line += text("rank ", rank, ": ");
    if (level == LogLevel::warning) line += "warning: ";
    if (level == LogLevel::error) line += "error: ";
    line += message;
    line += '\n';
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE void set_log_sink(LogSink sink) {
    detail::LogState& state = detail::log_state();
    const std::lock_guard lock(state.mutex);
    state.sink = std::move(sink);
}

DPTK_INLINE void log(LogLevel level, int rank, std::string_view message) {
    if (level == LogLevel::info && rank > 0) return;
    detail::LogState& state = detail::log_state();
    const std::lock_guard lock(state.mutex);
    if (state.sink) {
        state.sink(level, rank, message);
    } else {
        detail::write_log_line(level, rank, message);
    }
}

}  // namespace DPTK_NAMESPACE
