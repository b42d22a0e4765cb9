/// How the buckets of a step travel: in their order, in the background where the transport allows it, by an
/// all-reduce, a reduce-scatter or a hook; or not at all.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/ddp/detail/bucket_set.hpp"
#include "dptk/ddp/detail/hook_runner.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

class BucketTraffic {
  public:
    /// `is_own`: nobody else uses the group, so that calls may go on in the background.
    BucketTraffic(ProcessGroup& group, bool is_own, BucketSet::Outcome outcome)
        : group_(group), is_own_(is_own), outcome_(outcome) {}

    /// Null for none. Collective.
    void set_hook(std::shared_ptr<CommHook> hook);

    [[nodiscard]] bool has_hook() const noexcept { return hook_runner_ != nullptr; }

    /// Whether the last of these buckets carries the ranks' status.
    [[nodiscard]] bool carries_status(const BucketSet& buckets) const noexcept;

    /// A new step.
    void reset(std::size_t buckets);

    /// What it leaves with.
    struct Load {
        /// Sums where gradients are weighted; averages otherwise.
        ReduceOp op = ReduceOp::sum;
        /// This rank's weight, for hooks, and for sums in device memory.
        double weight = 1;
        std::size_t step = 0;
        /// Something is wrong on this rank.
        bool has_problem = false;
        /// Nothing else goes on meanwhile: a thread of its own would be for nothing.
        bool may_block = false;
    };

    /// Launches bucket `b`, whose gradients are in it, behind those before it. Collective; blocks where it
    /// must.
    void launch(BucketSet& buckets, std::size_t b, const std::vector<ParameterRef>& parameters,
                const Load& load);

    /// A bucket's, which begins when those before it have ended.
    struct Trip {
        trace::Clock::time_point begin;
        trace::Clock::time_point end = {};
    };

    /// Blocks until a bucket that was launched has come; in their order. Throws what it has failed with.
    Trip wait(std::size_t b);

  private:
    ProcessGroup& group_;
    bool is_own_;
    BucketSet::Outcome outcome_;
    std::vector<Work> in_flight_;
    std::vector<std::shared_ptr<Trip>> trips_;
    trace::Clock::time_point last_end_;
    std::unique_ptr<HookRunner> hook_runner_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/bucket_traffic.ipp"
#endif
