/// Statistics of DistributedDataParallel: bucket sizes, bytes, and times of the steps so far.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/renamed.hpp"

namespace DPTK_NAMESPACE {

/// Times in seconds, measured on the host. For device steps that the host does not wait for, communication
/// is not measured.
struct StepTimes {
    /// Time from the beginning of the step to synchronize(). If the step begins in synchronize(), time since
    /// the end of the previous step.
    double compute = 0;
    /// Time during which a bucket was being sent. Buckets are sent one after the other.
    double communication = 0;
    /// The part of `communication` during which this rank computed.
    double overlapped = 0;

    /// Adds the times of another step.
    StepTimes& operator+=(const StepTimes& other) noexcept;
};

/// Statistics of one rank. Bytes do not include what ShardedOptimizer::step() sends; times do.
struct DDPStatistics {
    /// Bytes of gradients in each bucket at construction, in the order of sending.
    std::vector<std::size_t> first_bucket_bytes;
    /// Bytes of gradients in each bucket now, in the order of sending.
    std::vector<std::size_t> bucket_bytes;
    /// The indices of the parameters, in the order in which they became ready in the last step. Empty under
    /// Ready::at_synchronize.
    std::vector<std::size_t> arrival_order;
    std::size_t steps = 0;  ///< The number of completed steps.
    /// Whether the averages are computed by ShardedOptimizer::step(): see FusedStep.
    bool has_fused_steps = false;
    /// The total bytes of the buckets of all steps. 0 with fused steps, which send no buckets.
    std::size_t bytes = 0;
    StepTimes last_step;  ///< Times of the last completed step.
    StepTimes all_steps;  ///< Sums of the times of all steps.
};

// The former spelling, until version 0.3.
DPTK_RENAMED_TYPE(DdpStatistics, DDPStatistics);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/statistics.ipp"
#endif
