/// Step timing: measures the steps of a training for its statistics, and records the transfers of buckets
/// in the timeline.
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
    /// Collective if DPTK_TRACE is set. The group must outlive this object.
    explicit StepClock(ProcessGroup& group) : group_(group), timeline_(Timeline::from_environment(group)) {}

    /// Writes the timeline, if there is one and the training has not failed.
    ~StepClock();
    StepClock(const StepClock&) = delete;
    StepClock& operator=(const StepClock&) = delete;

    void begin();

    /// Begins a step whose computation began at the end of the previous step, or at construction.
    void begin_at_previous_end() { begin_ = previous_end_; }

    void end_compute();

    /// Notes that a step has ended, whether it has succeeded or not.
    void end() { previous_end_ = trace::Clock::now(); }

    /// Records that a bucket with this number of bytes has been received.
    void record_transfer(std::size_t bucket, std::size_t bytes, const BucketTraffic::Transfer& transfer);

    /// Records that this rank has communicated from `begin` until now, after the step has ended. `name` is
    /// that of the span in the timeline.
    void record_communication(const char* name, trace::Clock::time_point begin);

    /// Records that the step has succeeded.
    void end_step(const std::vector<std::size_t>& arrival_order);

    [[nodiscard]] DDPStatistics& statistics() noexcept { return statistics_; }

  private:
    [[nodiscard]] static double seconds(trace::Clock::time_point begin, trace::Clock::time_point end);

    ProcessGroup& group_;
    std::unique_ptr<Timeline> timeline_;
    DDPStatistics statistics_;
    StepTimes step_;
    std::size_t step_bytes_ = 0;
    trace::Clock::time_point previous_end_ = trace::Clock::now();
    trace::Clock::time_point begin_;
    trace::Clock::time_point compute_end_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/step_clock.ipp"
#endif
