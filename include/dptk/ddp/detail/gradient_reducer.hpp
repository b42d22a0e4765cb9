/// GradientPostprocessing gradients over ranks, bucket by bucket, while backward goes on where the gradients
/// are marked. It knows nothing of layers, values or optimizers: DistributedDataParallel adds what a training
/// loop needs.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/bucket_set.hpp"
#include "dptk/ddp/detail/device_lanes.hpp"
#include "dptk/ddp/detail/gradient_marks.hpp"
#include "dptk/ddp/detail/gradient_postprocessing.hpp"
#include "dptk/ddp/detail/gradient_steps.hpp"
#include "dptk/ddp/detail/join_round.hpp"
#include "dptk/ddp/detail/model_buffers.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"
#include "dptk/ddp/detail/step_clock.hpp"
#include "dptk/ddp/detail/unused_parameters.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/ddp/parameter_source.hpp"
#include "dptk/ddp/statistics.hpp"

namespace DPTK_NAMESPACE::detail {

/// One step: begin_step, then backward (which marks, under Ready::marked), then synchronize.
///
/// A gradient is the mean over the rank's own samples. With sample counts (begin_step(n) or synchronize(n),
/// on all ranks) the result is the mean over all ranks' samples: each gradient is weighted by n / (sum of n).
/// Without, it is the mean over ranks. A rank with n = 0 contributes zeros, whatever its memory holds, and
/// need not mark.
///
/// Buckets leave in the reverse of the registration order, on a duplicate of the group, so that the program's
/// own calls never meet them. Over a transport that has no duplicate they travel inside synchronize(). Under
/// Ready::marked they are made anew after the first step, in the order in which rank 0's gradients became
/// ready, unless somebody has asked for the memory of one.
class GradientReducer {
  public:
    using Outcome = BucketSet::Outcome;

    /// Compares parameters and options on all ranks: collective. Throws on all ranks alike: MismatchError
    /// where they differ, ArgumentError where a rank's parameters or options are unusable. The group must
    /// outlive the reducer.
    GradientReducer(ProcessGroup& group, ParameterSource source, DistributedDataParallelOptions options = {},
                    Outcome outcome = Outcome::everywhere);

    GradientReducer(const GradientReducer&) = delete;
    GradientReducer& operator=(const GradientReducer&) = delete;

    /// The parameters in registration order, with the addresses of the last step.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept { return parameters_.refs(); }

    /// Gives all ranks the values of rank `root`, but of parameters that are ignored, and its buffers.
    /// Collective, blocks.
    void broadcast_values(int root = 0);

    /// The group that carries the buckets. Between steps it may serve other collectives of the same training.
    [[nodiscard]] ProcessGroup& group() noexcept { return *group_; }

    /// Where gradient `i` lies in its bucket. Whoever computes gradients straight into this memory saves the
    /// copies in and out. Aligned to 64 bytes. From now on buckets stay as they are.
    [[nodiscard]] Buffer gradient_memory(std::size_t i);

    /// What keeps that memory alive.
    [[nodiscard]] std::shared_ptr<void> bucket_memory(std::size_t i) const;

    /// Throws what is wrong with the steps on devices so far, on all ranks alike. Collective, blocks until
    /// they are over.
    void check();

    /// Between steps; where the outcome is in parts, each rank's part of each has its averages.
    [[nodiscard]] BucketSet& buckets() noexcept { return buckets_; }

    /// Throws ArgumentError for a parameter that there is not, or that is ignored.
    void check_in_bucket(std::size_t i) const;

    /// How many have ended well.
    [[nodiscard]] std::size_t steps() noexcept;

    /// What makes averages of the buckets of the last step, where they are unreduced.
    [[nodiscard]] ReduceOp reduction() const noexcept { return reduction_; }

    /// Of the steps so far.
    [[nodiscard]] DdpStatistics statistics();

    /// From the next step on, buckets are summed by the hook; null for the all-reduce of dptk's own. Throws
    /// MismatchError on all ranks where they set different ones, and ArgumentError in the middle of a step,
    /// or where some gradients are in device memory, and not all of them and the buffers, or without dptk's
    /// kernels. Collective.
    void set_comm_hook(std::shared_ptr<CommHook> hook);

    /// Begins a step on all ranks: collective. Does not wait for the others, but for rank 0's buffers where
    /// there are any. Under Ready::marked, gradients stay where they are from here, or from the first mark,
    /// until synchronize() returns; otherwise their addresses are read in synchronize(). Optional without a
    /// sample count: the first mark or synchronize() begins a step by itself.
    void begin_step();

    /// Begins a step in which this rank has `sample_count` samples. All ranks give a count, or none does.
    void begin_step(std::size_t sample_count) { begin(sample_count); }

    /// Under Ready::marked: gradient `i` is complete. From any thread. A bucket whose gradients are all
    /// complete leaves at once, except for the last, which leaves in synchronize(); all do so there where the
    /// ranks share memory and have no processors to spare. Never throws for a mistake of marking:
    /// synchronize() does, on all ranks.
    void mark_ready(std::size_t i) { mark(i, State::ready, nullptr); }

    /// The same of a late gradient, which lies at `gradient` until synchronize() has returned.
    void mark_ready(std::size_t i, void* gradient) { mark(i, State::ready, gradient); }

    /// Under Ready::marked: parameter `i` takes no part in this step on this rank, which contributes zeros.
    void mark_unused(std::size_t i) { mark(i, State::unused, nullptr); }

    /// Ends the step: on return the gradients are the average. Collective, blocks. Where all gradients are in
    /// device memory, and dptk's kernels are there, they are the average in the stream of the options, behind
    /// what that has been given; the host goes on, and errors are those of the step before.
    ///
    /// Throws on all ranks alike, ArgumentError: a gradient that was not marked, or twice; a parameter whose
    /// size has changed; a sample count given by some ranks only. The gradients are then unspecified, and the
    /// next step may begin.
    void synchronize();

    /// begin_step(sample_count) and synchronize() in one.
    void synchronize(std::size_t sample_count);

    /// synchronize() of a rank that has run out of samples while others have not: it makes their collectives,
    /// with zeros, and its own gradients stay as they are. Collective, blocks.
    void shadow();

    /// Of the steps that follow: which ranks still have samples, and whether averages without sample counts
    /// are over these alone. The same on all ranks.
    void set_joined(const JoinRound& round);

    /// Takes the gradients of a micro-batch of `sample_count` samples into sums of dptk's own, and sets them
    /// to zero. The next step's average is over these samples, too. Between steps, on any ranks, each any
    /// number of times; a step of which a rank has accumulated counts samples on all ranks, and synchronize()
    /// or begin_step() without a count then send what was accumulated alone. Does not communicate.
    void accumulate(std::size_t sample_count);

    /// Those of the last step, to clip or unscale. Throws ArgumentError in the middle of a step.
    [[nodiscard]] GradientPostprocessing& averages();

    /// While it lives, steps and marks do nothing: gradients add up in the program's own memory.
    class NoSync {
      public:
        explicit NoSync(GradientReducer& reducer);
        ~NoSync();
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

      private:
        GradientReducer& reducer_;
    };

  private:
    using State = GradientMarks::State;

    // ---- construction

    void check_options() const;

    [[nodiscard]] bool is_marked() const noexcept { return options_.ready == Ready::marked; }

    /// None where the host has a part in each step.
    [[nodiscard]] DeviceLanes make_lanes() const;

    void make_steps(DeviceLanes lanes);

    void make_buckets(const std::vector<std::size_t>& order);

    // ---- a step; all below with mutex_ held

    void begin(std::optional<std::size_t> sample_count);

    void check_counts_allowed() const;

    void check_not_begun() const;

    void begin_locked(std::optional<std::size_t> sample_count);

    void read_buffers();

    enum class Late { to_be_marked, found };

    void read_addresses(Late late = Late::to_be_marked);

    void begin_among_ranks();

    /// Whether the step goes on, as far as is known; begins it among the ranks, and sends rank 0's buffers.
    [[nodiscard]] bool may_proceed();

    /// Throws ArgumentError where the host has a part in the step, which has not begun then.
    void check_capturable();

    void mark(std::size_t i, State state, void* gradient);

    void note_mark(std::size_t i, State state);

    /// A late gradient, and no other, is marked with its address.
    void take_gradient(std::size_t i, void* gradient);

    /// Late gradients that are not known yet, for averages to go there, but for those of no rank.
    void find_gradients();

    void end_step();

    /// The next bucket.
    void launch();

    /// Whether a gradient goes into its bucket, and no zeros. One that waits for its mark takes no part.
    [[nodiscard]] bool takes_part(std::size_t i);

    /// Makes the buckets anew, once.
    void rebuild();

    [[noreturn]] void throw_problems();

    void reset_step();

    [[nodiscard]] bool may_communicate_here() const;

    /// Whether words and buckets leave before synchronize().
    [[nodiscard]] bool leaves_early() const;

    void check_index(std::size_t i) const;

    ModelParameters parameters_;
    DistributedDataParallelOptions options_;
    Outcome outcome_;
    std::unique_ptr<ProcessGroup> own_group_;
    ProcessGroup* group_ = nullptr;
    ModelBuffers buffers_;
    BucketSet buckets_;
    bool pinned_ = false;  // somebody knows the memory of a bucket
    bool rebuilt_ = false;

    std::mutex mutex_;
    int local_scopes_ = 0;
    bool begun_ = false;
    bool buffers_are_sent_ = false;
    OwnStep own_;
    ReduceOp reduction_ = ReduceOp::avg;
    GradientMarks marks_;
    std::vector<bool> takes_part_;  // by position in the next bucket
    UnusedParameters unused_;
    std::optional<StepClock> clock_;
    std::unique_ptr<GradientSteps> steps_;
    std::optional<GradientPostprocessing> postprocessing_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_reducer.ipp"
#endif
