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
    sent_.resize(buckets);
    for (std::size_t b = 0; b < buckets; ++b) {
        const bool is_in_use = b < in_flight_.size() && in_flight_[b].state() != nullptr;  // after an error
        if (is_in_use || !sent_[b]) sent_[b] = std::make_shared<Sent>();
    }
    in_flight_.assign(buckets, Work());
    last_end_ = {};
}

DPTK_INLINE void BucketTraffic::launch(BucketSet& buckets, std::size_t b,
                                       const std::vector<ParameterRef>& parameters, const LaunchInfo& info) {
    GradientBucket& bucket = buckets[b];
    const std::shared_ptr<Sent>& sent = sent_[b];
    sent->memory = bucket.memory();
    sent->transfer = {trace::Clock::now()};
    // Small enough for std::function to hold without an allocation; the operation keeps `sent` alive.
    const auto arrive = [transfer = &sent->transfer] { transfer->end = trace::Clock::now(); };
    const bool is_last = b + 1 == buckets.size();
    if (outcome_ == BucketSet::Outcome::unreduced) return arrive();
    if (hook_runner_) {
        HookBucket for_hook = hook_bucket(buckets, b, parameters);
        for_hook.step = info.step;
        for_hook.weight = info.weight;
        in_flight_[b] = hook_runner_->start(std::move(for_hook), arrive);
        in_flight_[b].detach();
        return;
    }
    if (is_last && carries_status(buckets)) bucket.set_status(info.has_problem);
    Reduction reduction = info.op;
    if (bucket.gradients().on_device() && info.op == ReduceOp::sum) reduction.weight = info.sum_weight;
    Collective call = outcome_ == BucketSet::Outcome::everywhere
                          ? bucket.all_reduce(reduction)
                          : bucket.reduce_scatter(reduction, group_.rank(), group_.size());
    call.bucket = static_cast<int>(b);
    if (bucket.gradients().on_device()) {
        in_flight_[b] = group_.engine().start(call, sent);  // wait() records the end
        if (!is_own_) in_flight_[b].wait();
        in_flight_[b].detach();  // the operation keeps `sent` alive
    } else if (is_own_ && !info.may_block) {
        in_flight_[b] = group_.engine().start(call, sent, arrive);
        in_flight_[b].detach();
    } else {
        group_.engine().run(call);
        arrive();
    }
}

DPTK_INLINE BucketTraffic::Transfer BucketTraffic::wait(std::size_t b) {
    in_flight_[b].wait();
    in_flight_[b] = Work();
    sent_[b]->memory = nullptr;  // buckets may be rebuilt
    Transfer transfer = sent_[b]->transfer;
    // launch() does not record the end for device memory
    if (transfer.end == trace::Clock::time_point()) transfer.end = trace::Clock::now();
    transfer.begin = std::max(transfer.begin, last_end_);
    transfer.end = std::max(transfer.end, transfer.begin);
    last_end_ = transfer.end;
    return transfer;
}

}  // namespace DPTK_NAMESPACE::detail
