/// DPTK_TRACE=file.json: what all ranks of a training do when, as a file that Perfetto and chrome://tracing
/// open (the Trace Event Format's complete events, in microseconds).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/trace.hpp"

namespace DPTK_NAMESPACE::detail {

/// Records this rank's spans as long as it lives: those of the thread that has made it, and those of its
/// buckets.
class Timeline {
  public:
    /// Where DPTK_TRACE names a file, and this thread records nothing yet; null otherwise. Collective.
    [[nodiscard]] static std::unique_ptr<Timeline> from_environment(ProcessGroup& group);

    /// Finds out how the ranks' clocks differ: collective, blocks. The group must outlive this.
    Timeline(ProcessGroup& group, std::string path);

    ~Timeline();
    Timeline(const Timeline&) = delete;
    Timeline& operator=(const Timeline&) = delete;

    [[nodiscard]] trace::Recorder& recorder() noexcept { return recorder_; }

    /// Rank 0 writes all ranks' spans so far. Collective, blocks. Throws Error on rank 0 where the file
    /// cannot be written.
    void write();

  private:
    /// Nanoseconds of this rank's clock.
    [[nodiscard]] static std::int64_t now();
    [[nodiscard]] static std::int64_t nanoseconds(trace::Clock::time_point time);

    /// Each rank in turn asks rank 0 for its time, and believes the quickest answer (Cristian 1989).
    void compare_clocks();

    /// This rank's part of the file.
    [[nodiscard]] std::string events() const;

    [[nodiscard]] static std::string microseconds(std::int64_t nanoseconds);

    [[nodiscard]] static std::string escaped(std::string_view name);

    ProcessGroup& group_;
    std::string path_;
    trace::Recorder recorder_;
    std::int64_t origin_ = 0;  // on rank 0's clock
    std::int64_t offset_ = 0;  // from this rank's clock to rank 0's
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/timeline.ipp"
#endif
