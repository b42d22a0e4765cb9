/// What a training run shows while it goes on: a bar that is redrawn in place, or plain lines for a log.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

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

[[nodiscard]] std::string duration_text(double seconds);

}  // namespace detail

/// Writes to stdout. Give ranks other than 0 the style `none`.
class ProgressPrinter {
  public:
    /// In that style.
    explicit ProgressPrinter(ProgressStyle style) : style_(style) {}

    /// Redraws the bar, or writes a line where there was none for five seconds.
    void update(const TrainingProgress& progress);

    /// Writes a line of its own, in the place of the bar.
    void line(const std::string& text);

  private:
    [[nodiscard]] static std::string bar(double done);

    ProgressStyle style_;
    std::chrono::steady_clock::time_point last_line_ = {};
    bool drawn_ = false;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/progress.ipp"
#endif
