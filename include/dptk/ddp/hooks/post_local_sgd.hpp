/// Local SGD after a warm-up: gradients are averaged within small groups of ranks, such as those of one host,
/// and parameters over all ranks now and then (Lin et al., Don't Use Large Mini-Batches, Use Local SGD,
/// 2020).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/hook_memory.hpp"
#include "dptk/ddp/hooks/allreduce.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE {

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
    PostLocalSgd(ProcessGroup subgroup, PostLocalSgdOptions options);

    [[nodiscard]] DPTK_INLINE std::string description() const override;

    DPTK_INLINE void reduce(ProcessGroup& group, HookBucket& bucket) override;

    /// From the first local step on.
    [[nodiscard]] bool is_capturable() const override { return steps_ >= options_.start_step; }

    /// How many have been done, for a training that goes on later; a graph's count once. Between steps.
    [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
    /// For a training that goes on: what steps() gave.
    void set_steps(std::size_t steps) { steps_ = steps; }

  private:
    void reduce_on_device(const HookBucket& bucket);

    ProcessGroup subgroup_;
    PostLocalSgdOptions options_;
    AllReduce all_reduce_;
    detail::HookMemory memory_;  // of weights
    std::size_t steps_ = 0;
};

/// The hook; `subgroup` is this rank's, such as group.split_by_host().
[[nodiscard]] std::shared_ptr<PostLocalSgd> post_local_sgd(ProcessGroup subgroup,
                                                           PostLocalSgdOptions options = {});

}  // namespace hooks

/// GradientPostprocessing the parameters' values over all ranks in each `period`th step, from step
/// `warmup_steps` on. Call it after each step of the optimizer. PyTorch's PeriodicModelAverager.
class PeriodicModelAverager {
  public:
    /// Throws ArgumentError for a period of 0. The group must outlive this.
    PeriodicModelAverager(ProcessGroup& group, std::size_t period, std::size_t warmup_steps = 0);

    /// Collective in the steps in which it averages. Returns whether it has.
    bool average_parameters(const std::vector<ParameterRef>& parameters);

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

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/hooks/post_local_sgd.ipp"
#endif
