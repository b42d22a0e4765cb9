/// What a training run shows while it goes on: a bar that is redrawn in place, or plain lines for a log.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>

#include "dptk/core/text.hpp"

namespace dptk {

/// Where a training run stands. All numbers are over all ranks.
struct TrainingProgress {
    int epoch = 0;                  ///< From 1 on.
    int epochs = 0;                 ///< In the whole run.
    std::size_t batch = 0;          ///< Done in this epoch.
    std::size_t batches = 0;        ///< In each epoch.
    double loss = 0;                ///< The mean over the samples of this epoch so far.
    double samples_per_second = 0;  ///< Over all ranks, in this epoch so far.
    double seconds_left = 0;        ///< To the end of the last epoch.
};

/// A bar that is redrawn in place, lines for a log, or nothing.
enum class ProgressStyle { bar, lines, none };

namespace detail {

[[nodiscard]] inline std::string duration_text(double seconds) {
    char text[32];
    const long whole = std::lround(seconds);
    std::snprintf(text, sizeof text, "%ld:%02ld", whole / 60, whole % 60);
    return text;
}

}  // namespace detail

/// Writes to stdout. Give ranks other than 0 the style `none`.
class ProgressPrinter {
  public:
    /// In that style.
    explicit ProgressPrinter(ProgressStyle style) : style_(style) {}

    /// Redraws the bar, or writes a line where there was none for five seconds.
    void update(const TrainingProgress& progress) {
        if (style_ == ProgressStyle::none) return;
        const auto now = std::chrono::steady_clock::now();
        if (style_ == ProgressStyle::lines && now - last_line_ < std::chrono::seconds(5)) return;
        last_line_ = now;
        const double done = static_cast<double>(progress.batch) / static_cast<double>(progress.batches);
        char text[160];
        std::snprintf(text, sizeof text, "epoch %d/%d %s%3.0f %%  loss %.4f  %.0f samples/s  %s left",
                      progress.epoch, progress.epochs, style_ == ProgressStyle::bar ? bar(done).c_str() : "",
                      done * 100, progress.loss, progress.samples_per_second,
                      detail::duration_text(progress.seconds_left).c_str());
        if (style_ == ProgressStyle::bar) {
            std::printf("\r%s\033[K", text);
            drawn_ = true;
        } else {
            std::printf("%s\n", text);
        }
        std::fflush(stdout);
    }

    /// Writes a line of its own, in the place of the bar.
    void line(const std::string& text) {
        if (style_ == ProgressStyle::none) return;
        std::printf("%s%s\n", drawn_ ? "\r\033[K" : "", text.c_str());
        std::fflush(stdout);
        drawn_ = false;
        last_line_ = std::chrono::steady_clock::now();
    }

  private:
    [[nodiscard]] static std::string bar(double done) {
        constexpr int width = 24;
        const int filled = static_cast<int>(done * width);
        return "[" + std::string(static_cast<std::size_t>(filled), '#') +
               std::string(static_cast<std::size_t>(width - filled), '.') + "] ";
    }

    ProgressStyle style_;
    std::chrono::steady_clock::time_point last_line_ = {};
    bool drawn_ = false;
};

}  // namespace dptk
