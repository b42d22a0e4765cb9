/// Timeline tracing: named time spans of each rank, recorded if DPTK_TRACE=file.json is set (see
/// ddp/detail/timeline.hpp). If DPTK_TRACE is not set, a span costs only a few pointer checks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::trace {

/// The clock that measures spans.
using Clock = std::chrono::steady_clock;

/// The row of a rank's timeline.
enum class Lane : std::uint8_t { program, communication };

/// A span that has ended.
struct Event {
    std::string name;           ///< The name of the activity.
    Lane lane = Lane::program;  ///< The row in which the span is drawn.
    Clock::time_point begin;    ///< The time at which the span began.
    Clock::time_point end;      ///< The time at which the span ended.
};

/// The spans of one rank. Thread-safe.
class Recorder {
  public:
    /// Adds a span. After the first million, spans are dropped.
    void record(Event event);

    /// Returns all spans that were recorded so far.
    [[nodiscard]] std::vector<Event> events() const;

  private:
    mutable std::mutex mutex_;
    std::vector<Event> events_;
};

/// Receives this thread's spans; null if they are not recorded.
inline thread_local Recorder* current = nullptr;

/// A profiler that receives the same spans, such as Nsight Systems through core/cuda/detail/nvtx.hpp.
struct Profiler {
    void (*begin)(const char* name);  ///< Begins a span on this thread.
    void (*end)();                    ///< Ends the last span on this thread.
};

/// The active profiler, or null.
inline std::atomic<const Profiler*> profiler = nullptr;

/// A time span on this thread, from construction to destruction.
class Span {
  public:
    /// Begins a span named `name`.
    explicit Span(std::string_view name);
    /// Begins a span named by a name and a number: "backward 3".
    Span(std::string_view name, std::size_t number);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

  private:
    Span();

    [[nodiscard]] bool is_wanted() const noexcept { return recorder_ != nullptr || profiler_ != nullptr; }

    void open(std::string name);

    Recorder* recorder_;
    const Profiler* profiler_;
    std::string name_;
    Clock::time_point begin_;
};

}  // namespace DPTK_NAMESPACE::trace

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/trace.ipp"
#endif
