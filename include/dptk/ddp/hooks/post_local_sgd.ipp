#pragma once

#include "dptk/ddp/hooks/post_local_sgd.hpp"

#include <utility>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/coalesced.hpp"
#include "dptk/ddp/detail/bucket_math.hpp"

namespace DPTK_NAMESPACE::hooks {

DPTK_INLINE PostLocalSGD::PostLocalSGD(ProcessGroup subgroup, PostLocalSGDOptions options)
    : subgroup_(std::move(subgroup)), options_(options) {}

DPTK_INLINE std::string PostLocalSGD::description() const {
    return detail::text("post_local_sgd from step ", options_.start_step,
                        options_.post_local_gradient_allreduce ? "" : " without local averages");
}

DPTK_INLINE void PostLocalSGD::reduce(ProcessGroup& group, HookBucket& bucket) {
    const bool is_local = steps_ >= options_.start_step;
    if (bucket.is_last) ++steps_;
    if (!is_local) return all_reduce_.reduce(group, bucket);
    if (bucket.lane) return reduce_on_device(bucket);
    // The bucket is weighted for a sum over all ranks: rescale it for the sum over the subgroup.
    double weight = bucket.weight;
    if (options_.post_local_gradient_allreduce) {
        all_reduce_.reduce(subgroup_, bucket);
        weight = subgroup_.all_reduce_value(weight);
    }
    if (weight > 0) detail::scale(bucket.elements, bucket.elements.data, 1 / weight);
}

DPTK_INLINE void PostLocalSGD::reduce_on_device(const HookBucket& bucket) {
    const Buffer weight = memory_.get(bucket, 1, DType::f64);
    const detail::BucketMath math(bucket);
    math.copy(weight, bucket.device_weight);
    if (options_.post_local_gradient_allreduce) {
        math.all_reduce(subgroup_, bucket.elements);
        math.all_reduce(subgroup_, weight);
    }
    bucket.lane->math().divide({&bucket.elements, 1}, weight.data);
}

DPTK_INLINE std::shared_ptr<PostLocalSGD> post_local_sgd(ProcessGroup subgroup, PostLocalSGDOptions options) {
    return std::make_shared<PostLocalSGD>(std::move(subgroup), options);
}

}  // namespace DPTK_NAMESPACE::hooks

namespace DPTK_NAMESPACE {

DPTK_INLINE PeriodicModelAverager::PeriodicModelAverager(ProcessGroup& group, std::size_t period,
                                                         std::size_t warmup_steps)
    : group_(group), period_(period), warmup_steps_(warmup_steps) {
    if (period == 0) throw ArgumentError("PeriodicModelAverager: invalid period 0: expected 1 or more");
}

DPTK_INLINE bool PeriodicModelAverager::average_parameters(const std::vector<ParameterRef>& parameters,
                                                           StreamRef stream) {
    const std::size_t step = steps_++;
    if (step < warmup_steps_ || (step - warmup_steps_) % period_ != 0) return false;
    detail::ErasedBuffers values;
    for (const ParameterRef& parameter : parameters) values.buffers.push_back(parameter.value_buffer());
    detail::run_coalesced(group_, {.verb = Verb::all_reduce, .reduction = ReduceOp::avg, .stream = stream},
                          values, values);
    return true;
}

}  // namespace DPTK_NAMESPACE
