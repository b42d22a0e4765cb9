/// The interface of step execution: how gradients are copied into buckets, reduced over the ranks, and
/// copied back. GradientReducer decides when, and which gradients take part; HostSteps and DeviceSteps
/// implement the interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/bucket_set.hpp"
#include "dptk/ddp/detail/device_lanes.hpp"
#include "dptk/ddp/detail/join_round.hpp"
#include "dptk/ddp/detail/model_buffers.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"
#include "dptk/ddp/detail/step_clock.hpp"
#include "dptk/ddp/detail/unused_parameters.hpp"
#include "dptk/ddp/options.hpp"

namespace DPTK_NAMESPACE::detail {

/// This rank's view of the current step.
struct LocalStep {
    /// The number of steps that have succeeded before.
    std::size_t number = 0;
    /// The number of samples of this rank, if it counts samples.
    std::optional<std::size_t> samples;
    /// Whether this rank has run out of samples, and only takes part in the others' collectives.
    bool is_shadow = false;
    /// Whether the gradients' addresses are valid; otherwise gradients are neither read nor written.
    bool has_addresses = true;
    /// Whether the addresses of the model's buffers are valid.
    bool has_buffers = true;
    /// The hash of the parameters' values, if this rank takes part in their comparison in this step.
    std::optional<std::uint32_t> hash;
    /// Whether this rank knows that the values differ between the ranks.
    bool has_drifted = false;
    /// Whether this rank has a problem other than drift.
    bool has_mistake = false;
    /// The first problem on this rank, or empty, and the parameter that it is about, or empty.
    std::string problem;
    std::string parameter;

    void note(std::string what, std::string_view its_parameter = {});

    void note_count();

    void note_drift();
};

class GradientSteps {
  public:
    /// All references must outlive this object.
    GradientSteps(ProcessGroup& group, const ModelParameters& parameters, BucketSet& buckets,
                  const DistributedDataParallelOptions& options)
        : group_(group),
          parameters_(parameters),
          buckets_(buckets),
          sums_samples_(options.loss_reduction == LossReduction::sum),
          finds_unused_(options.find_unused_parameters) {}
    virtual ~GradientSteps() = default;
    GradientSteps(const GradientSteps&) = delete;
    GradientSteps& operator=(const GradientSteps&) = delete;

    /// Applies a join round to subsequent steps.
    void set_joined(const JoinRound& round) noexcept { round_ = round; }
    [[nodiscard]] const JoinRound& joined() const noexcept { return round_; }

    /// Sets a hook, or removes the hook if the argument is null. Call set_hook() between steps. Throws
    /// ArgumentError on all ranks if hooks are not supported. Collective.
    virtual void set_hook(std::shared_ptr<CommHook> hook) = 0;

    /// Returns whether this step is being captured into a CUDA graph.
    [[nodiscard]] virtual bool is_captured() const { return false; }
    /// Throws ArgumentError if the step cannot be captured: a step that does the same device work must have
    /// run before without capture.
    virtual void check_capturable() const {}

    /// Multiplies the gradients, which are means over `samples` samples, by `samples`, adds the products to
    /// internal sums, and sets the gradients to zero. Without lanes, all gradients must be in host memory.
    virtual void accumulate(std::size_t samples) = 0;
    [[nodiscard]] bool has_accumulated() const noexcept { return has_accumulated_; }
    [[nodiscard]] std::size_t accumulated_samples() const noexcept { return accumulated_samples_; }

    /// Starts to send this rank's status of the step to the other ranks. Collective, does not block.
    virtual void begin(const LocalStep& own) = 0;
    [[nodiscard]] virtual bool has_begun() const noexcept = 0;

    /// Returns whether the step may proceed, the same on all ranks: false if some rank has reported a
    /// problem. Starts the exchange of the ranks' status if begin() has not been called. HostSteps blocks
    /// until the status of all ranks is known; DeviceSteps returns true at once, and reports problems in
    /// the next step. Collective.
    [[nodiscard]] virtual bool may_proceed(LocalStep& own) = 0;

    /// Broadcasts the buffers of rank `root`. Collective.
    virtual void send(const ModelBuffers& buffers, int root, const LocalStep& own) = 0;

    /// Returns the index of the next bucket to send.
    [[nodiscard]] std::size_t next() const noexcept { return next_; }

    /// Fills and sends the next bucket. `takes_part` says for each of its gradients whether it is copied;
    /// zeros replace the others. Collective.
    void launch(const LocalStep& own, const std::vector<bool>& takes_part);

    /// Completes a step after all buckets have been launched: writes the averages to the gradients, except
    /// unused ones. Returns whether the step succeeded, with the same result on all ranks; otherwise `own`
    /// contains this rank's problem. Collective.
    [[nodiscard]] virtual bool finish(LocalStep& own, const UnusedParameters& unused, StepClock& clock) = 0;

    /// Returns, as finish() does, whether earlier steps with an unknown outcome have succeeded. Collective,
    /// blocks.
    [[nodiscard]] virtual bool status_ok(LocalStep&) { return true; }

    /// Notes that buckets have been rebuilt.
    virtual void on_buckets_rebuilt() {}

    /// Resets the state of a step after its end, so that the next one may begin.
    virtual void reset() { next_ = 0; }

    /// Discards the sums of accumulate().
    DPTK_INLINE virtual void discard_sums();

    /// Returns the operation that averages the contents of the buckets.
    [[nodiscard]] DPTK_INLINE virtual ReduceOp reduction(const LocalStep& own) const noexcept;

    /// Returns the lanes if all gradients are in device memory and steps run there; otherwise null.
    [[nodiscard]] virtual const DeviceLanes* lanes() const noexcept { return nullptr; }

    /// Returns whether there is communication, and it leaves a processor for backward. The result is equal on
    /// all ranks.
    [[nodiscard]] bool overlaps() const;

  protected:
    virtual void launch_bucket(std::size_t b, const LocalStep& own, const std::vector<bool>& takes_part) = 0;

    void note_accumulated(std::size_t samples) noexcept;

    /// Returns the number of ranks by which sums are divided to get averages if samples are not counted.
    [[nodiscard]] int averaging_ranks() const;

    /// Returns whether gradients are sums over samples, so that they are not weighted.
    [[nodiscard]] bool sums_samples() const noexcept { return sums_samples_; }

    /// Returns whether a gradient that does not take part, and lies in its bucket, may have to keep its
    /// elements, although zeros are sent from there.
    [[nodiscard]] bool may_keep_gradients(const LocalStep& own) const noexcept {
        return own.is_shadow || finds_unused_;
    }

    /// Returns the factor of a gradient of `samples` samples in the sum over micro-batches.
    [[nodiscard]] double micro_batch_weight(std::size_t samples) const noexcept;

    [[nodiscard]] bool any_problem(const LocalStep& own);

    /// Aborts the job if `action` throws: other ranks cannot know of a local failure.
    template <class Action>
    void abort_job_on_error(Action&& action) {
        group_.engine().control()->fail_job_on_error(std::forward<Action>(action));
    }

    ProcessGroup& group_;
    const ModelParameters& parameters_;
    BucketSet& buckets_;
    JoinRound round_;

  private:
    bool sums_samples_;
    bool finds_unused_;
    std::size_t next_ = 0;
    std::size_t accumulated_samples_ = 0;
    bool has_accumulated_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_steps.ipp"
#endif
