#pragma once

#include "dptk/ddp/detail/step_clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE StepClock::~StepClock() {
    const bool unwinding = std::uncaught_exceptions() > uncaught_exceptions_;
    if (!timeline_ || unwinding || group_.engine().control()->job_state()->failed()) return;
    try {
        timeline_->write();
    } catch (const std::exception& error) {
        log(LogLevel::error, group_.rank(), error.what());
    }
}

DPTK_INLINE void StepClock::begin() {
    begin_ = trace::Clock::now();
}

DPTK_INLINE void StepClock::end_compute() {
    compute_end_ = trace::Clock::now();
    step_ = {.compute = seconds(begin_, compute_end_)};
    step_bytes_ = 0;
}

DPTK_INLINE void StepClock::record_transfer(std::size_t bucket, std::size_t bytes,
                                            const BucketTraffic::Transfer& transfer) {
    step_.communication += seconds(transfer.begin, transfer.end);
    step_.overlapped += seconds(transfer.begin, std::min(transfer.end, compute_end_));
    step_bytes_ += bytes;
    if (timeline_)
        timeline_->recorder().record(
            {text("bucket ", bucket), trace::Lane::communication, transfer.begin, transfer.end});
}

DPTK_INLINE void StepClock::record_communication(const char* name, trace::Clock::time_point begin) {
    const trace::Clock::time_point now = trace::Clock::now();
    const StepTimes times{.communication = seconds(begin, now)};
    statistics_.last_step += times;
    statistics_.all_steps += times;
    previous_end_ += now - begin;  // so that the next step's computation does not include it
    if (timeline_) timeline_->recorder().record({name, trace::Lane::communication, begin, now});
}

DPTK_INLINE void StepClock::end_step(const std::vector<std::size_t>& arrival_order) {
    statistics_.last_step = step_;
    statistics_.all_steps += step_;
    statistics_.bytes += step_bytes_;
    statistics_.arrival_order = arrival_order;
    ++statistics_.steps;
    const auto microseconds = [](double time) {
        return std::chrono::microseconds(static_cast<std::int64_t>(time * 1e6));
    };
    const StepTimes& all = statistics_.all_steps;
    group_.engine().control()->note_progress({.steps = statistics_.steps,
                                              .compute = microseconds(all.compute),
                                              .waiting = microseconds(all.communication - all.overlapped)});
}

DPTK_INLINE double StepClock::seconds(trace::Clock::time_point begin, trace::Clock::time_point end) {
    return std::max(std::chrono::duration<double>(end - begin).count(), 0.0);
}

}  // namespace DPTK_NAMESPACE::detail
