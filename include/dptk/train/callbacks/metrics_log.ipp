#pragma once

#include "dptk/train/callbacks/metrics_log.hpp"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/number_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/detail/input_file.hpp"
#include "dptk/data/detail/replacement_file.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Returns the columns of a log: names, and the values of the last epoch, in a table or in JSON.
[[nodiscard]] DPTK_INLINE std::vector<std::pair<const char*, std::string>> log_columns(
    const TrainingStatus& status, double lr, bool is_csv) {
    const auto number = [&](double value, int digits) -> std::string {
        if (!is_csv && !std::isfinite(value)) return "null";  // JSON has no NaN
        return general_text(value, digits);
    };
    return {{"epoch", text(status.epoch + 1)},
            {"step", text(status.step)},
            {"lr", number(lr, 9)},
            {"train_loss", number(status.training.loss, 9)},
            {"train_accuracy", number(status.training.accuracy, 9)},
            {"test_loss", number(status.test.loss, 9)},
            {"test_accuracy", number(status.test.accuracy, 9)},
            {"samples_per_second", number(status.samples_per_second, 6)}};
}

/// Returns the lines of a log up to an epoch; none without the file. Throws BackendError.
[[nodiscard]] DPTK_INLINE std::string log_until(const std::string& path, int epoch) {
    if (!std::filesystem::exists(path)) return "";
    std::istringstream file(file_text(path));
    std::string kept, line;
    while (std::getline(file, line)) {
        const std::size_t digit = line.find_first_of("0123456789");
        if (digit != std::string::npos && std::atoi(line.c_str() + digit) <= epoch) kept += line + '\n';
    }
    return kept;
}

DPTK_INLINE void append_to_file(const std::string& path, const std::string& text) {
    std::FILE* const file = std::fopen(path.c_str(), "a");
    const bool is_written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const int error = errno;
    if ((file != nullptr && std::fclose(file) != 0) || !is_written)
        throw BackendError(
            detail::text(path, ": cannot be written: ", detail::errno_text(is_written ? errno : error)));
}

DPTK_INLINE void replace_file(const std::string& path, const std::string& text) {
    ReplacementFile file(path);
    file.write(text.data(), text.size());
    file.complete();
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
    std::string header, line;
    for (const auto& [name, value] : detail::log_columns(status, run.lr(), is_csv)) {
        const char* const separator = line.empty() ? "" : is_csv ? "," : ", ";
        header += detail::text(separator, name);
        line += is_csv ? separator + value : detail::text(separator, '"', name, "\": ", value);
    }
    std::string text;
    if (!is_begun_) {
        if (is_csv) text = header + '\n';
        text += detail::log_until(path_, status.epoch);
    }
    text += (is_csv ? line : '{' + line + '}') + '\n';
    is_begun_ ? detail::append_to_file(path_, text) : detail::replace_file(path_, text);
    is_begun_ = true;
}

}  // namespace DPTK_NAMESPACE
