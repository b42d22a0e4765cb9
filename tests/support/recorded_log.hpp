// Records what the library logs.
#pragma once

#include <dptk/core/log.hpp>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

/// Records the log lines that are written while the object exists.
class RecordedLog {
  public:
    RecordedLog() {
        dptk::set_log_sink([this](dptk::LogLevel, int, std::string_view line) {
            const std::lock_guard lock(mutex_);
            lines_.emplace_back(line);
        });
    }
    RecordedLog(const RecordedLog&) = delete;
    RecordedLog& operator=(const RecordedLog&) = delete;
    ~RecordedLog() { dptk::set_log_sink(nullptr); }

    [[nodiscard]] std::vector<std::string> lines() const {
        const std::lock_guard lock(mutex_);
        return lines_;
    }

  private:
    mutable std::mutex mutex_;
    std::vector<std::string> lines_;
};
