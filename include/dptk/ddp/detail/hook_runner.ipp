#pragma once

#include "dptk/ddp/detail/hook_runner.hpp"

#include <utility>

#include "dptk/control/health/control_plane.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE HookBucket hook_bucket(const BucketSet& buckets, std::size_t b,
                                   const std::vector<ParameterRef>& parameters) {
    HookBucket out{
        .index = b, .is_last = b + 1 == buckets.size(), .elements = buckets[b].gradients(), .gradients = {}};
    const std::vector<std::size_t>& indices = buckets[b].indices();
    for (std::size_t position = 0; position < indices.size(); ++position) {
        const ParameterRef& parameter = parameters[indices[position]];
        out.gradients.push_back({.parameter = indices[position],
                                 .shape = parameter.shape,
                                 .elements = buckets[b].gradient(position, parameter.count),
                                 .layout = parameter.layout});
    }
    return out;
}

DPTK_INLINE HookRunner::HookRunner(ProcessGroup& group, std::shared_ptr<CommHook> hook, bool can_duplicate)
    : hook_(std::move(hook)), group_(&group) {
    if (!can_duplicate) return;
    own_group_ = std::make_unique<ProcessGroup>(group.duplicate());
    group_ = own_group_.get();
    group_->engine().set_purpose({.call = "a communication hook", .owner = "DistributedDataParallel"});
    in_background_ = !group_->engine().progresses_by_caller() && !group_->engine().competes_with_compute();
}

DPTK_INLINE void HookRunner::run(HookBucket& bucket) {
    group_->engine().control()->fail_job_on_error([&] { hook_->reduce(*group_, bucket); });
}

DPTK_INLINE Work HookRunner::start(HookBucket bucket, std::function<void()> then) {
    const auto reduce = [this, bucket = std::move(bucket), then = std::move(then)]() mutable {
        run(bucket);
        then();
        return -1;
    };
    if (in_background_) return Work(queue_.start(reduce));
    auto here = reduce;
    static_cast<void>(here());
    return {};
}

}  // namespace DPTK_NAMESPACE::detail
