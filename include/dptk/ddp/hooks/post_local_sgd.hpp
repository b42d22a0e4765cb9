/// Post-local SGD: after a warm-up, gradients are averaged only within small groups of ranks, such as the
/// ranks of one host, and parameters are periodically averaged over all ranks (Lin et al., Don't Use Large
/// Mini-Batches, Use Local SGD, 2020).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/renamed.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/hook_memory.hpp"
#include "dptk/ddp/hooks/allreduce.hpp"

namespace DPTK_NAMESPACE {

namespace hooks {

/// Options of PostLocalSGD, named as in PyTorch. They must be equal on all ranks.
struct PostLocalSGDOptions {
    /// The first step in which gradients are averaged only within the subgroup.
    std::size_t start_step = 100;
    /// Whether gradients are averaged within the subgroup from start_step on; otherwise, each rank then
    /// uses its own gradients.
    bool post_local_gradient_allreduce = true;
};

/// Averages gradients within a subgroup after a warm-up, like PyTorch's post_localSGD_hook.
class PostLocalSGD final : public CommHook {
  public:
    /// `subgroup` is a group with this rank, such as the result of group.split_by_host().
    PostLocalSGD(ProcessGroup subgroup, PostLocalSGDOptions options);

    [[nodiscard]] DPTK_INLINE std::string description() const override;

    DPTK_INLINE void reduce(ProcessGroup& group, HookBucket& bucket) override;

    /// Returns true once `start_step` steps are done: all later steps do the same device work.
    [[nodiscard]] bool is_capturable() const override { return steps_ >= options_.start_step; }

    /// Returns false from the first local step on.
    [[nodiscard]] bool keeps_values_equal() const override { return steps_ < options_.start_step; }

    /// Returns the number of completed steps, for checkpoints. A CUDA graph counts as one step, however
    /// often it is launched. Call it between steps.
    [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
    /// Restores the number of steps that steps() returned.
    void set_steps(std::size_t steps) { steps_ = steps; }

  private:
    void reduce_on_device(const HookBucket& bucket);

    ProcessGroup subgroup_;
    PostLocalSGDOptions options_;
    AllReduce all_reduce_;
    detail::HookMemory memory_;  // for weights
    std::size_t steps_ = 0;
};

/// Makes a post-local SGD hook. `subgroup` is a group with this rank, such as the result of
/// group.split_by_host().
[[nodiscard]] std::shared_ptr<PostLocalSGD> post_local_sgd(ProcessGroup subgroup,
                                                           PostLocalSGDOptions options = {});

// Former spellings, until version 0.3.
DPTK_RENAMED_TYPE(PostLocalSgd, PostLocalSGD);
DPTK_RENAMED_TYPE(PostLocalSgdOptions, PostLocalSGDOptions);

}  // namespace hooks

/// Averages the parameters' values over all ranks in every `period`th step, from step `warmup_steps` on,
/// like PyTorch's PeriodicModelAverager. Call average_parameters() after each step of the optimizer.
class PeriodicModelAverager {
  public:
    /// Throws ArgumentError if `period` is 0. The group must outlive this object.
    PeriodicModelAverager(ProcessGroup& group, std::size_t period, std::size_t warmup_steps = 0);

    /// Counts a step, and averages the values if this step is due, in the order of `stream` if they are in
    /// device memory. Returns whether it has averaged them. Collective in the steps that average.
    bool average_parameters(const std::vector<ParameterRef>& parameters, StreamRef stream = {});

    /// Returns the number of completed steps, for checkpoints. It is equal on all ranks.
    [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
    /// Restores the number of steps that steps() returned.
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
