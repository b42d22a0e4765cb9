/// How the buckets of a step travel: in their order, in the background where the transport allows it, by an
/// all-reduce, a reduce-scatter or a hook; or not at all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/ddp/bucket_set.hpp"
#include "dptk/ddp/hook_runner.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace dptk::detail {

class BucketTraffic {
  public:
    /// `is_own`: nobody else uses the group, so that calls may go on in the background.
    BucketTraffic(ProcessGroup& group, bool is_own, BucketSet::Outcome outcome)
        : group_(group), is_own_(is_own), outcome_(outcome) {}

    /// Null for none. Collective.
    void set_hook(std::shared_ptr<CommHook> hook) {
        hook_runner_.reset();
        if (hook) hook_runner_ = std::make_unique<HookRunner>(group_, std::move(hook), is_own_);
    }

    [[nodiscard]] bool has_hook() const noexcept { return hook_runner_ != nullptr; }

    /// Whether the last of these buckets carries the ranks' status.
    [[nodiscard]] bool carries_status(const BucketSet& buckets) const noexcept {
        return buckets.carries_status() && !has_hook();
    }

    /// A new step.
    void reset(std::size_t buckets) {
        in_flight_.assign(buckets, Work());
        trips_.assign(buckets, nullptr);
        last_end_ = {};
    }

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
                const Load& load) {
        GradientBucket& bucket = buckets[b];
        const auto trip = std::make_shared<Trip>(trace::Clock::now());
        const auto arrive = [trip] { trip->end = trace::Clock::now(); };
        trips_[b] = trip;
        const bool is_last = b + 1 == buckets.size();
        if (outcome_ == BucketSet::Outcome::unreduced) return arrive();
        if (hook_runner_) {
            HookBucket for_hook = hook_bucket(buckets, b, parameters);
            for_hook.step = load.step;
            for_hook.weight = load.weight;
            in_flight_[b] = hook_runner_->start(std::move(for_hook), arrive);
            return;
        }
        if (is_last && carries_status(buckets)) bucket.set_status(load.has_problem);
        Reduction reduction = load.op;
        if (bucket.gradients().on_device() && load.op == ReduceOp::sum) reduction.weight = load.weight;
        Collective call = outcome_ == BucketSet::Outcome::everywhere
                              ? bucket.all_reduce(reduction)
                              : bucket.reduce_scatter(reduction, group_.rank(), group_.size());
        call.bucket = static_cast<int>(b);
        if (bucket.gradients().on_device()) {
            in_flight_[b] = group_.channel().start(call, bucket.memory());  // whose end a wait will tell
            if (!is_own_) in_flight_[b].wait();
        } else if (is_own_ && !load.may_block) {
            in_flight_[b] = group_.channel().start(call, bucket.memory(), arrive);
        } else {
            group_.channel().run(call);
            arrive();
        }
    }

    /// A bucket's, which begins when those before it have ended.
    struct Trip {
        trace::Clock::time_point begin;
        trace::Clock::time_point end = {};
    };

    /// Blocks until a bucket that was launched has come; in their order. Throws what it has failed with.
    Trip wait(std::size_t b) {
        in_flight_[b].wait();
        Trip trip = *trips_[b];
        if (trip.end == trace::Clock::time_point()) trip.end = trace::Clock::now();  // on a device
        trip.begin = std::max(trip.begin, last_end_);
        trip.end = std::max(trip.end, trip.begin);
        last_end_ = trip.end;
        return trip;
    }

  private:
    ProcessGroup& group_;
    bool is_own_;
    BucketSet::Outcome outcome_;
    std::vector<Work> in_flight_;
    std::vector<std::shared_ptr<Trip>> trips_;
    trace::Clock::time_point last_end_;
    std::unique_ptr<HookRunner> hook_runner_;
};

}  // namespace dptk::detail
