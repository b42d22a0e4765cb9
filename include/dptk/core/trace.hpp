/// What a rank does when: spans of time, recorded where somebody has asked for them (DPTK_TRACE=file.json,
/// see ddp/detail/timeline.hpp), and nothing but a look at a pointer otherwise.
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

/// By which spans are measured.
using Clock = std::chrono::steady_clock;

/// What a rank does beside each other.
enum class Lane : std::uint8_t { program, communication };

/// A span that has ended.
struct Event {
    std::string name;           ///< What the rank did.
    Lane lane = Lane::program;  ///< Where it is drawn.
    Clock::time_point begin;    ///< When it began.
    Clock::time_point end;      ///< When it ended.
};

/// One rank's spans. From any thread.
class Recorder {
  public:
    /// Those behind the first million are dropped.
    void record(Event event);

    /// All that were recorded so far.
    [[nodiscard]] std::vector<Event> events() const;

  private:
    mutable std::mutex mutex_;
    std::vector<Event> events_;
};

/// Where this thread's spans go; null where nobody has asked for any.
inline thread_local Recorder* current = nullptr;

/// A profiler that is shown the same spans, such as Nsight by core/cuda/detail/nvtx.hpp.
struct Profiler {
    void (*begin)(const char* name);  ///< Of a span on this thread.
    void (*end)();                    ///< Of the last one on this thread.
};

/// Null where there is none.
inline std::atomic<const Profiler*> profiler = nullptr;

/// From its construction to its end, on this thread.
class Span {
  public:
    /// A span of that name.
    explicit Span(std::string_view name);
    /// "backward 3"
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
