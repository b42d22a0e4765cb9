/// What a DistributedDataParallel has done so far, and how long it took.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// In seconds, on the host: of steps that it does not wait for, on devices, no communication is measured.
struct StepTimes {
    /// From the beginning of the step to synchronize().
    double compute = 0;
    /// During which a bucket travelled; buckets travel one after the other.
    double communication = 0;
    /// That part of it during which this rank computed.
    double overlapped = 0;

    /// Adds another step's.
    StepTimes& operator+=(const StepTimes& other) noexcept;
};

/// What ShardedOptimizer::step() sends is not in these numbers.
struct DdpStatistics {
    /// Bytes of gradients in each bucket, in the order in which they leave: at construction, and now.
    std::vector<std::size_t> first_bucket_bytes;
    /// Bytes of gradients in each bucket, in the order in which they leave: now.
    std::vector<std::size_t> bucket_bytes;
    /// The parameters in the order in which they became ready in the last step, under Ready::marked.
    std::vector<std::size_t> arrival_order;
    std::size_t steps = 0;  ///< How many there have been.
    /// Of the buckets of all steps.
    std::size_t bytes = 0;
    StepTimes last_step;  ///< Of the step that has ended last.
    StepTimes all_steps;  ///< Their sums.
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/statistics.ipp"
#endif
