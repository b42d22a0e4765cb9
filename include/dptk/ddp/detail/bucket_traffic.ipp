#pragma once

#include "dptk/ddp/detail/bucket_traffic.hpp"

#include <algorithm>
#include <utility>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void BucketTraffic::set_hook(std::shared_ptr<CommHook> hook) {
    hook_runner_.reset();
    if (hook) hook_runner_ = std::make_unique<HookRunner>(group_, std::move(hook), is_own_);
}

DPTK_INLINE bool BucketTraffic::carries_status(const BucketSet& buckets) const noexcept {
    return buckets.carries_status() && !has_hook();
}

DPTK_INLINE void BucketTraffic::reset(std::size_t buckets) {
    in_flight_.assign(buckets, Work());
    trips_.assign(buckets, nullptr);
    last_end_ = {};
}

DPTK_INLINE void BucketTraffic::launch(BucketSet& buckets, std::size_t b,
                                       const std::vector<ParameterRef>& parameters, const Load& load) {
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

DPTK_INLINE BucketTraffic::Trip BucketTraffic::wait(std::size_t b) {
    in_flight_[b].wait();
    Trip trip = *trips_[b];
    if (trip.end == trace::Clock::time_point()) trip.end = trace::Clock::now();  // on a device
    trip.begin = std::max(trip.begin, last_end_);
    trip.end = std::max(trip.end, trip.begin);
    last_end_ = trip.end;
    return trip;
}

}  // namespace DPTK_NAMESPACE::detail
