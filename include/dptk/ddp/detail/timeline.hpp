/// Trace files: DPTK_TRACE=file.json writes a timeline of all ranks' work for Perfetto and chrome://tracing
/// (complete events of the Trace Event Format, in microseconds).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/trace.hpp"

namespace DPTK_NAMESPACE::detail {

/// While a Timeline exists, it records this rank's spans: those of the thread that created the Timeline,
/// and the transfers of buckets.
class Timeline {
  public:
    /// Makes a timeline if DPTK_TRACE names a file and this thread is not being recorded; otherwise returns
    /// null. Collective.
    [[nodiscard]] static std::unique_ptr<Timeline> from_environment(ProcessGroup& group);

    /// Measures the offset between the ranks' clocks. Collective, blocks. The group must outlive this
    /// object.
    Timeline(ProcessGroup& group, std::string path);

    ~Timeline();
    Timeline(const Timeline&) = delete;
    Timeline& operator=(const Timeline&) = delete;

    [[nodiscard]] trace::Recorder& recorder() noexcept { return recorder_; }

    /// Writes, on rank 0, the spans of all ranks so far. Collective, blocks. Throws Error on rank 0 if the
    /// file cannot be written.
    void write();

  private:
    /// Returns the time of this rank's clock, in nanoseconds.
    [[nodiscard]] static std::int64_t now();
    [[nodiscard]] static std::int64_t nanoseconds(trace::Clock::time_point time);

    /// Estimates the offset to rank 0's clock: each rank in turn asks rank 0 for its time, and uses the
    /// reply with the shortest round trip (Cristian 1989).
    void compare_clocks();

    /// Returns this rank's part of the file.
    [[nodiscard]] std::string events() const;

    [[nodiscard]] static std::string microseconds(std::int64_t nanoseconds);

    [[nodiscard]] static std::string escaped(std::string_view name);

    ProcessGroup& group_;
    std::string path_;
    trace::Recorder recorder_;
    std::int64_t origin_ = 0;  // time 0 of the file, on rank 0's clock
    std::int64_t offset_ = 0;  // rank 0's clock minus this rank's clock
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/timeline.ipp"
#endif
