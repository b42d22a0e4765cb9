/// What a rank does when: spans of time, recorded where somebody has asked for them (DPTK_TRACE=file.json,
/// see ddp/timeline.hpp), and nothing but a look at a pointer otherwise.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dptk::trace {

using Clock = std::chrono::steady_clock;

/// What a rank does beside each other.
enum class Lane : std::uint8_t { program, communication };

struct Event {
    std::string name;
    Lane lane = Lane::program;
    Clock::time_point begin;
    Clock::time_point end;
};

/// One rank's spans. From any thread.
class Recorder {
  public:
    /// Those behind the first million are dropped.
    void record(Event event) {
        constexpr std::size_t most = 1'000'000;
        const std::lock_guard lock(mutex_);
        if (events_.size() < most) events_.push_back(std::move(event));
    }

    [[nodiscard]] std::vector<Event> events() const {
        const std::lock_guard lock(mutex_);
        return events_;
    }

  private:
    mutable std::mutex mutex_;
    std::vector<Event> events_;
};

/// Where this thread's spans go; null where nobody has asked for any.
inline thread_local Recorder* current = nullptr;

/// From its construction to its end, on this thread.
class Span {
  public:
    explicit Span(std::string_view name) : recorder_(current) {
        if (recorder_ == nullptr) return;
        name_ = name;
        begin_ = Clock::now();
    }
    /// "backward 3"
    Span(std::string_view name, std::size_t number) : Span(name) {
        if (recorder_ != nullptr) name_ += ' ' + std::to_string(number);
    }
    ~Span() {
        if (recorder_ != nullptr) recorder_->record({std::move(name_), Lane::program, begin_, Clock::now()});
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

  private:
    Recorder* recorder_;
    std::string name_;
    Clock::time_point begin_;
};

}  // namespace dptk::trace
