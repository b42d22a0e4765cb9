/// Measures the steps of a training: its statistics, and the spans of its buckets.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/ddp/detail/bucket_traffic.hpp"
#include "dptk/ddp/detail/timeline.hpp"
#include "dptk/ddp/statistics.hpp"

namespace DPTK_NAMESPACE::detail {

class StepClock {
  public:
    /// Collective where DPTK_TRACE is set. The group must outlive this.
    explicit StepClock(ProcessGroup& group) : group_(group), timeline_(Timeline::from_environment(group)) {}

    /// Writes the timeline, where there is one and all is well.
    ~StepClock();
    StepClock(const StepClock&) = delete;
    StepClock& operator=(const StepClock&) = delete;

    void begin();

    void end_compute();

    /// A bucket of so many bytes has come.
    void note_trip(std::size_t bucket, std::size_t bytes, const BucketTraffic::Trip& trip);

    /// The step has gone well.
    void end_step(const std::vector<std::size_t>& arrival_order);

    [[nodiscard]] DdpStatistics& statistics() noexcept { return statistics_; }

  private:
    [[nodiscard]] static double seconds(trace::Clock::time_point begin, trace::Clock::time_point end);

    ProcessGroup& group_;
    std::unique_ptr<Timeline> timeline_;
    DdpStatistics statistics_;
    StepTimes step_;
    std::size_t step_bytes_ = 0;
    trace::Clock::time_point begin_;
    trace::Clock::time_point compute_end_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/step_clock.ipp"
#endif
