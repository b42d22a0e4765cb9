/// Sends the buckets of a step in order: by an all-reduce, a reduce-scatter or a communication hook, in the
/// background if the transport supports it; or leaves them unreduced.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/ddp/detail/bucket_set.hpp"
#include "dptk/ddp/detail/hook_runner.hpp"

namespace DPTK_NAMESPACE::detail {

class BucketTraffic {
  public:
    /// `is_own` says that the group is used by this object only, so that calls may run in the background.
    BucketTraffic(ProcessGroup& group, bool is_own, BucketSet::Outcome outcome)
        : group_(group), is_own_(is_own), outcome_(outcome) {}

    /// Sets a hook, or removes the hook if the argument is null. Collective.
    void set_hook(std::shared_ptr<CommHook> hook);

    [[nodiscard]] bool has_hook() const noexcept { return hook_runner_ != nullptr; }

    /// Returns whether the last of these buckets carries the ranks' status.
    [[nodiscard]] bool carries_status(const BucketSet& buckets) const noexcept;

    /// Begins a step with this number of buckets.
    void reset(std::size_t buckets);

    /// What a bucket's launch needs to know of the step.
    struct LaunchInfo {
        /// Sum if gradients are weighted, otherwise average.
        ReduceOp op = ReduceOp::sum;
        /// This rank's weight, for hooks.
        double weight = 1;
        /// The factor of this rank's gradients in sums in device memory, where it is applied by the
        /// reduction.
        double sum_weight = 1;
        std::size_t step = 0;
        /// Whether this rank has found a problem.
        bool has_problem = false;
        /// Whether the launch may block, since nothing would overlap with it.
        bool may_block = false;
    };

    /// Sends bucket `b`, which has been filled, after the buckets before it. Collective. Blocks if calls
    /// cannot run in the background; may block if `info.may_block` is set.
    void launch(BucketSet& buckets, std::size_t b, const std::vector<ParameterRef>& parameters,
                const LaunchInfo& info);

    /// The time during which a bucket was being sent. It does not begin before the previous bucket has been
    /// received.
    struct Transfer {
        trace::Clock::time_point begin;
        trace::Clock::time_point end = {};
    };

    /// Blocks until a launched bucket has been received. Buckets must be waited for in order. Throws if the
    /// bucket's communication has failed.
    Transfer wait(std::size_t b);

  private:
    /// What an operation in flight writes to and keeps alive. Used again in the next step.
    struct Sent {
        Transfer transfer;
        std::shared_ptr<void> memory;
    };

    ProcessGroup& group_;
    bool is_own_;
    BucketSet::Outcome outcome_;
    std::vector<Work> in_flight_;
    std::vector<std::shared_ptr<Sent>> sent_;
    trace::Clock::time_point last_end_;
    std::unique_ptr<HookRunner> hook_runner_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/bucket_traffic.ipp"
#endif
