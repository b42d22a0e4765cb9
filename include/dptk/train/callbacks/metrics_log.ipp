#pragma once

#include "dptk/train/callbacks/metrics_log.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

inline constexpr std::string_view csv_header =
    "epoch,step,lr,train_loss,train_accuracy,test_loss,test_accuracy,samples_per_second\n";

/// Returns the lines of a log up to an epoch.
[[nodiscard]] DPTK_INLINE std::string log_until(const std::string& path, int epoch) {
    std::ifstream file(path);
    std::string kept, line;
    while (std::getline(file, line)) {
        const std::size_t digit = line.find_first_of("0123456789");
        if (digit != std::string::npos && std::atoi(line.c_str() + digit) <= epoch) kept += line + '\n';
    }
    return kept;
}

}  // namespace detail

DPTK_INLINE void MetricsLog::epoch_end(TrainingRun& run) {
    on_all_or_none(run.group(), [&] {
        if (run.group().rank() == 0) write(run);
    });
}

DPTK_INLINE void MetricsLog::write(const TrainingRun& run) {
    const TrainingStatus& status = run.status();
    const bool is_csv = path_.ends_with(".csv");
    std::string text;
    if (!is_begun_) {
        if (is_csv) text = detail::csv_header;
        text += detail::log_until(path_, status.epoch);
    }
    char line[512];
    std::snprintf(line, sizeof line,
                  is_csv ? "%d,%lld,%.9g,%.9g,%.9g,%.9g,%.9g,%.6g\n"
                         : "{\"epoch\": %d, \"step\": %lld, \"lr\": %.9g, \"train_loss\": %.9g, "
                           "\"train_accuracy\": %.9g, \"test_loss\": %.9g, \"test_accuracy\": %.9g, "
                           "\"samples_per_second\": %.6g}\n",
                  status.epoch + 1, static_cast<long long>(status.step), run.lr(), status.training.loss,
                  status.training.accuracy, status.test.loss, status.test.accuracy,
                  status.samples_per_second);
    text += line;
    std::FILE* const file = std::fopen(path_.c_str(), is_begun_ ? "a" : "w");
    const bool is_written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const int error = errno;
    if ((file != nullptr && std::fclose(file) != 0) || !is_written)
        throw BackendError(
            detail::text(path_, ": cannot be written: ", std::strerror(is_written ? errno : error)));
    is_begun_ = true;
}

}  // namespace DPTK_NAMESPACE
