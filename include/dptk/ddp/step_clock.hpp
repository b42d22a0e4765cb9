/// Measures the steps of a training: its statistics, and the spans of its buckets.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/log.hpp"
#include "dptk/core/text.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/ddp/bucket_traffic.hpp"
#include "dptk/ddp/statistics.hpp"
#include "dptk/ddp/timeline.hpp"

namespace dptk::detail {

class StepClock {
  public:
    /// Collective where DPTK_TRACE is set. The group must outlive this.
    explicit StepClock(ProcessGroup& group) : group_(group), timeline_(Timeline::from_environment(group)) {}

    /// Writes the timeline, where there is one and all is well.
    ~StepClock() {
        const bool unwinding = std::uncaught_exceptions() > uncaught_exceptions_;
        if (!timeline_ || unwinding || group_.channel().control().health()->failed()) return;
        try {
            timeline_->write();
        } catch (const std::exception& error) {
            log(LogLevel::error, group_.rank(), error.what());
        }
    }
    StepClock(const StepClock&) = delete;
    StepClock& operator=(const StepClock&) = delete;

    void begin() { begin_ = trace::Clock::now(); }

    void end_compute() {
        compute_end_ = trace::Clock::now();
        step_ = {.compute = seconds(begin_, compute_end_)};
        step_bytes_ = 0;
    }

    /// A bucket of so many bytes has come.
    void note_trip(std::size_t bucket, std::size_t bytes, const BucketTraffic::Trip& trip) {
        step_.communication += seconds(trip.begin, trip.end);
        step_.overlapped += seconds(trip.begin, std::min(trip.end, compute_end_));
        step_bytes_ += bytes;
        if (timeline_)
            timeline_->recorder().record(
                {text("bucket ", bucket), trace::Lane::communication, trip.begin, trip.end});
    }

    /// The step has gone well.
    void end_step(const std::vector<std::size_t>& arrival_order) {
        statistics_.last_step = step_;
        statistics_.all_steps += step_;
        statistics_.bytes += step_bytes_;
        statistics_.arrival_order = arrival_order;
        ++statistics_.steps;
    }

    [[nodiscard]] DdpStatistics& statistics() noexcept { return statistics_; }

  private:
    [[nodiscard]] static double seconds(trace::Clock::time_point begin, trace::Clock::time_point end) {
        return std::max(std::chrono::duration<double>(end - begin).count(), 0.0);
    }

    ProcessGroup& group_;
    std::unique_ptr<Timeline> timeline_;
    DdpStatistics statistics_;
    StepTimes step_;
    std::size_t step_bytes_ = 0;
    trace::Clock::time_point begin_;
    trace::Clock::time_point compute_end_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace dptk::detail
