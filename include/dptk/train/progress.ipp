#pragma once

#include "dptk/train/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/number_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string duration_text(double seconds) {
    char text[32];
    const long whole = std::lround(seconds);
    std::snprintf(text, sizeof text, "%ld:%02ld", whole / 60, whole % 60);
    return text;
}

DPTK_INLINE std::size_t terminal_columns() {
    winsize size = {};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    const char* const variable = std::getenv("COLUMNS");
    const long columns = variable == nullptr ? 0 : std::strtol(variable, nullptr, 10);
    return columns > 0 ? static_cast<std::size_t>(columns) : 80;
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE void ProgressPrinter::update(const TrainingProgress& progress) {
    if (style_ == ProgressStyle::none) return;
    const auto now = std::chrono::steady_clock::now();
    if (style_ == ProgressStyle::lines && now - last_line_ < std::chrono::seconds(5)) return;
    last_line_ = now;
    const double done = static_cast<double>(progress.batch) / static_cast<double>(progress.batches);
    const std::string epoch = detail::text("epoch ", progress.epoch, '/', progress.epochs, ' ');
    const std::string numbers = detail::text(
        detail::padded(detail::fixed_text(done * 100, 0), 3), " %  loss ",
        detail::fixed_text(progress.loss, 4), "  ", detail::fixed_text(progress.samples_per_second, 0),
        " samples/s  ", detail::duration_text(progress.seconds_left), " left");
    if (style_ == ProgressStyle::bar) {
        const std::size_t columns = detail::terminal_columns() - 1;  // a full line may wrap
        const std::size_t taken = epoch.size() + numbers.size();
        const std::string text = epoch + bar(done, columns > taken ? columns - taken : 0) + numbers;
        std::printf("\r%s\033[K", text.substr(0, columns).c_str());
        drawn_ = true;
    } else {
        std::printf("%s%s\n", epoch.c_str(), numbers.c_str());
    }
    std::fflush(stdout);
}

DPTK_INLINE void ProgressPrinter::line(const std::string& text) {
    if (!log_.empty()) append_to_log(text);
    if (style_ == ProgressStyle::none) return;
    std::printf("%s%s\n", drawn_ ? "\r\033[K" : "", text.c_str());
    std::fflush(stdout);
    drawn_ = false;
    last_line_ = std::chrono::steady_clock::now();
}

DPTK_INLINE void ProgressPrinter::append_to_log(const std::string& text) {
    const std::time_t now = std::time(nullptr);
    std::tm local = {};
    localtime_r(&now, &local);
    char time[32];
    std::strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S  ", &local);
    std::FILE* const file = std::fopen(log_.c_str(), "a");
    const bool is_written = file != nullptr && std::fprintf(file, "%s%s\n", time, text.c_str()) > 0;
    const bool is_closed = file == nullptr || std::fclose(file) == 0;
    if (is_written && is_closed) return;
    log(LogLevel::warning, 0, detail::text(log_, ": cannot be written: ", detail::errno_text(errno)));
    log_.clear();
}

/// Returns a bar of at most `columns` columns, and at most 27; empty if it would be too small.
DPTK_INLINE std::string ProgressPrinter::bar(double done, std::size_t columns) {
    constexpr std::size_t most = 24, brackets = 3;
    if (columns < brackets + 4) return "";
    const std::size_t width = std::min(most, columns - brackets);
    const auto filled = static_cast<std::size_t>(done * static_cast<double>(width));
    return '[' + std::string(filled, '#') + std::string(width - filled, '.') + "] ";
}

}  // namespace DPTK_NAMESPACE
