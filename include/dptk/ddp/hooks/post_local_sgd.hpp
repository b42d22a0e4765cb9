/// Local SGD after a warm-up: gradients are averaged within small groups of ranks, such as those of one host,
/// and parameters over all ranks now and then (Lin et al., Don't Use Large Mini-Batches, Use Local SGD,
/// 2020).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/coalesced.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/ddp/bucket_math.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/hook_memory.hpp"
#include "dptk/ddp/hooks/allreduce.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace dptk {

namespace hooks {

/// Under PyTorch's names. Equal on all ranks.
struct PostLocalSgdOptions {
    /// The first step in which gradients stay in their group.
    std::size_t start_step = 100;
    /// Whether gradients are averaged there at all.
    bool post_local_gradient_allreduce = true;
};

/// post_localSGD_hook
class PostLocalSgd final : public CommHook {
  public:
    /// `subgroup` is this rank's, such as group.split_by_host().
    PostLocalSgd(ProcessGroup subgroup, PostLocalSgdOptions options)
        : subgroup_(std::move(subgroup)), options_(options) {}

    [[nodiscard]] std::string description() const override {
        return detail::text("post_local_sgd from step ", options_.start_step,
                            options_.post_local_gradient_allreduce ? "" : " without local averages");
    }

    void reduce(ProcessGroup& group, HookBucket& bucket) override {
        const bool is_local = steps_ >= options_.start_step;
        if (bucket.is_last) ++steps_;
        if (!is_local) return all_reduce_.reduce(group, bucket);
        if (bucket.lane) return reduce_on_device(bucket);
        // The bucket is weighted for a sum over all ranks.
        double weight = bucket.weight;
        if (options_.post_local_gradient_allreduce) {
            all_reduce_.reduce(subgroup_, bucket);
            weight = subgroup_.all_reduce_value(weight);
        }
        if (weight > 0) detail::scale(bucket.elements, bucket.elements.data, 1 / weight);
    }

    /// From the first local step on.
    [[nodiscard]] bool is_capturable() const override { return steps_ >= options_.start_step; }

    /// How many have been done, for a training that goes on later; a graph's count once. Between steps.
    [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
    /// For a training that goes on: what steps() gave.
    void set_steps(std::size_t steps) { steps_ = steps; }

  private:
    void reduce_on_device(const HookBucket& bucket) {
        const Buffer weight = memory_.get(bucket, 1, DType::f64);
        const detail::BucketMath math(bucket);
        math.copy(weight, bucket.device_weight);
        if (options_.post_local_gradient_allreduce) {
            math.all_reduce(subgroup_, bucket.elements);
            math.all_reduce(subgroup_, weight);
        }
        bucket.lane->math().divide({&bucket.elements, 1}, weight.data);
    }

    ProcessGroup subgroup_;
    PostLocalSgdOptions options_;
    AllReduce all_reduce_;
    detail::HookMemory memory_;  // of weights
    std::size_t steps_ = 0;
};

/// The hook; `subgroup` is this rank's, such as group.split_by_host().
[[nodiscard]] inline std::shared_ptr<PostLocalSgd> post_local_sgd(ProcessGroup subgroup,
                                                                  PostLocalSgdOptions options = {}) {
    return std::make_shared<PostLocalSgd>(std::move(subgroup), options);
}

}  // namespace hooks

/// Averages the parameters' values over all ranks in each `period`th step, from step `warmup_steps` on. Call
/// it after each step of the optimizer. PyTorch's PeriodicModelAverager.
class PeriodicModelAverager {
  public:
    /// Throws ArgumentError for a period of 0. The group must outlive this.
    PeriodicModelAverager(ProcessGroup& group, std::size_t period, std::size_t warmup_steps = 0)
        : group_(group), period_(period), warmup_steps_(warmup_steps) {
        if (period == 0) throw ArgumentError("PeriodicModelAverager: a period of 0 steps");
    }

    /// Collective in the steps in which it averages. Returns whether it has.
    bool average_parameters(const std::vector<ParameterRef>& parameters) {
        const std::size_t step = steps_++;
        if (step < warmup_steps_ || (step - warmup_steps_) % period_ != 0) return false;
        detail::ErasedBuffers values;
        for (const ParameterRef& parameter : parameters)
            values.buffers.push_back({parameter.value, parameter.count, parameter.dtype, parameter.device});
        detail::run_coalesced(group_, {.verb = Verb::all_reduce, .reduction = ReduceOp::avg}, values, values);
        return true;
    }

    /// How many have been done, for a training that goes on later. The same on all ranks.
    [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
    /// For a training that goes on: what steps() gave.
    void set_steps(std::size_t steps) { steps_ = steps; }

  private:
    ProcessGroup& group_;
    std::size_t period_;
    std::size_t warmup_steps_;
    std::size_t steps_ = 0;
};

}  // namespace dptk
