/// How the gradients of a step get into buckets, over the ranks and back: GradientReducer says when, and what
/// takes part; HostSteps and DeviceSteps do it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/control/health/agreed_errors.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/bucket_set.hpp"
#include "dptk/ddp/detail/device_lanes.hpp"
#include "dptk/ddp/detail/join_round.hpp"
#include "dptk/ddp/detail/model_buffers.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"
#include "dptk/ddp/detail/step_clock.hpp"
#include "dptk/ddp/detail/unused_parameters.hpp"

namespace DPTK_NAMESPACE::detail {

/// What this rank knows and says of the step under way.
struct OwnStep {
    /// How many have gone well before.
    std::size_t number = 0;
    /// Samples whose gradients it computes, where it counts them.
    std::optional<std::size_t> samples;
    /// It has none any more, and does what the others do.
    bool is_shadow = false;
    /// Its gradients are where they should be; otherwise they are neither read nor written.
    bool has_addresses = true;
    /// The same of the model's buffers.
    bool has_buffers = true;
    /// The first thing that is wrong here; empty where all is well.
    std::string problem;

    void note(std::string what);

    void note_count();
};

class GradientSteps {
  public:
    /// All of it must outlive this.
    GradientSteps(ProcessGroup& group, const ModelParameters& parameters, BucketSet& buckets)
        : group_(group), parameters_(parameters), buckets_(buckets) {}
    virtual ~GradientSteps() = default;
    GradientSteps(const GradientSteps&) = delete;
    GradientSteps& operator=(const GradientSteps&) = delete;

    /// Of the steps that follow.
    void set_joined(const JoinRound& round) noexcept { round_ = round; }
    [[nodiscard]] const JoinRound& joined() const noexcept { return round_; }

    /// Between steps; null for none. Throws ArgumentError on all ranks where hooks cannot be. Collective.
    virtual void set_hook(std::shared_ptr<CommHook> hook) = 0;

    /// Whether this step goes into a graph, which does the same whenever it is launched.
    [[nodiscard]] virtual bool is_captured() const { return false; }
    /// Throws ArgumentError where it cannot: where none has gone kernel by kernel that does the same.
    virtual void check_capturable() const {}

    /// Takes the gradients of `samples` samples, whose mean each is, into sums, and sets them to zero.
    /// Without lanes they are all in host memory.
    virtual void accumulate(std::size_t samples) = 0;
    [[nodiscard]] bool has_accumulated() const noexcept { return has_accumulated_; }
    [[nodiscard]] std::size_t accumulated_samples() const noexcept { return accumulated_samples_; }

    /// Begins to tell the other ranks what this one says of the step. Collective, does not block.
    virtual void begin(const OwnStep& own) = 0;
    [[nodiscard]] virtual bool has_begun() const noexcept = 0;

    /// Whether the step goes on, as far as is known: on all ranks alike. Begins it where that has not been
    /// done. Collective; blocks where the host has a part in the step.
    [[nodiscard]] virtual bool may_proceed(OwnStep& own) = 0;

    /// Gives all ranks those of rank `root`. Collective.
    virtual void send(const ModelBuffers& buffers, int root, const OwnStep& own) = 0;

    /// The next bucket to leave.
    [[nodiscard]] std::size_t next() const noexcept { return next_; }

    /// Fills that bucket and sends it. `takes_part`: for each of its gradients, whether it does; zeros stand
    /// for the others. Collective.
    void launch(const OwnStep& own, const std::vector<bool>& takes_part);

    /// All buckets have been launched: the averages go to the gradients, but for those that are unused.
    /// Returns whether all is well, on all ranks alike; else `own` says what was wrong here. Collective.
    [[nodiscard]] virtual bool finish(OwnStep& own, const UnusedParameters& unused, StepClock& clock) = 0;

    /// Whether what is not known yet of the steps so far was well, as finish() does. Collective, blocks.
    [[nodiscard]] virtual bool status_ok(OwnStep&) { return true; }

    /// Buckets have been made anew.
    virtual void take_new_buckets() {}

    /// Behind a step, however it has ended: the next one may begin.
    virtual void reset() { next_ = 0; }

    /// Drops what accumulate() has taken.
    DPTK_INLINE virtual void forget_sums();

    /// What makes averages of what is in the buckets.
    [[nodiscard]] ReduceOp reduction(const OwnStep& own) const noexcept;

    /// Where gradients are all in device memory, and steps are there; else null.
    [[nodiscard]] virtual const DeviceLanes* lanes() const noexcept { return nullptr; }

    /// Whether what goes on in the background leaves backward its processor. The same on all ranks.
    [[nodiscard]] bool overlaps() const;

  protected:
    virtual void launch_bucket(std::size_t b, const OwnStep& own, const std::vector<bool>& takes_part) = 0;

    void note_accumulated(std::size_t samples) noexcept;

    /// Over which averages without sample counts are.
    [[nodiscard]] int ranks_that_count() const;

    [[nodiscard]] bool any_problem(const OwnStep& own);

    /// What fails in a rank's memory, the other ranks cannot know of: ends the job.
    template <class Action>
    void abort_job_on_error(Action&& action) {
        break_job_unless_agreed(group_.channel().job(), std::forward<Action>(action));
    }

    ProcessGroup& group_;
    const ModelParameters& parameters_;
    BucketSet& buckets_;
    JoinRound round_;

  private:
    std::size_t next_ = 0;
    std::size_t accumulated_samples_ = 0;
    bool has_accumulated_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_steps.ipp"
#endif
