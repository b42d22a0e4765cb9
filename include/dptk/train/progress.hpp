/// Progress output of a training run: a bar that is redrawn in place, or plain lines for a log.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The progress of a training run. All numbers are over all ranks.
struct TrainingProgress {
    int epoch = 0;                  ///< The current epoch, counted from 1.
    int epochs = 0;                 ///< The number of epochs of the whole run.
    std::size_t batch = 0;          ///< The number of batches done in this epoch.
    std::size_t batches = 0;        ///< The number of batches in each epoch.
    double loss = 0;                ///< The mean loss over the samples of this epoch so far.
    double samples_per_second = 0;  ///< The throughput of all ranks together in this epoch so far.
    double seconds_left = 0;        ///< The estimated time to the end of the last epoch.
};

/// The style of the output: a bar that is redrawn in place, lines for a log, or no output.
enum class ProgressStyle { bar, lines, none };

namespace detail {

[[nodiscard]] std::string duration_text(double seconds);

/// Returns the width of the terminal that stdout is, or COLUMNS, or 80.
[[nodiscard]] std::size_t terminal_columns();

}  // namespace detail

/// Writes progress to stdout, and lines to a log. The bar is narrower than the terminal, or without one, than
/// the variable COLUMNS says, or else than 80 columns. Use the style `none` and no log on all ranks except
/// rank 0.
class ProgressPrinter {
  public:
    /// Makes a printer of the given style. Appends what line() gets to the file `log`, with the local time,
    /// if it is not empty; its folder must exist by then. A log that cannot be written is a warning of dptk's
    /// log sink, not an error.
    explicit ProgressPrinter(ProgressStyle style, std::string log = {})
        : style_(style), log_(std::move(log)) {}

    /// Redraws the bar. In the style `lines`, writes a line if the last one is at least five seconds old.
    void update(const TrainingProgress& progress);

    /// Writes a separate line, which replaces the bar.
    void line(const std::string& text);

  private:
    [[nodiscard]] static std::string bar(double done, std::size_t columns);

    void append_to_log(const std::string& text);

    ProgressStyle style_;
    std::string log_;
    std::chrono::steady_clock::time_point last_line_ = {};
    bool drawn_ = false;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/progress.ipp"
#endif
