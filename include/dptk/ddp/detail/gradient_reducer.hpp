/// Gradient reduction: averages gradients over ranks, bucket by bucket, overlapped with backward if
/// gradients are marked. This part of dptk does not depend on layers or optimizers: DistributedDataParallel
/// adds what a training loop needs.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/trace.hpp"
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

/// Runs the steps of a training. A step calls begin_step(), then backward (which marks gradients under
/// Ready::marked), then synchronize().
///
/// A gradient is the mean over the rank's own samples. Without sample counts, the result is the mean over
/// ranks. With sample counts (begin_step(n) or synchronize(n), on all ranks), the result is the mean over
/// all ranks' samples: each gradient is weighted by n / (sum of n). A rank with n = 0 contributes zeros,
/// whatever its memory contains, and need not mark gradients.
///
/// Buckets are sent in the reverse of the registration order, on a duplicate of the group, so that they
/// cannot be confused with the program's own calls. If the transport cannot duplicate the group, buckets
/// are sent inside synchronize(). As in PyTorch, under Ready::marked buckets are rebuilt once, after the
/// first step, in the order in which rank 0's gradients became ready, unless gradient_memory() was called.
class GradientReducer {
  public:
    using Outcome = BucketSet::Outcome;

    /// Compares parameters and options between ranks. Collective. Throws on all ranks: MismatchError if
    /// parameters or options differ, ArgumentError if a rank's parameters or options are unusable. The
    /// group must outlive the reducer.
    GradientReducer(ProcessGroup& group, ParameterSource source, DistributedDataParallelOptions options = {},
                    Outcome outcome = Outcome::everywhere);

    /// Returns a reducer over the group. In an elastic job, ranks come at different times: nothing is sent,
    /// and all steps throw MembershipChanged, until the reducer is replaced by over(group), which must
    /// outlive it.
    [[nodiscard]] static std::unique_ptr<GradientReducer> make(ProcessGroup& group, ParameterSource source,
                                                               const DistributedDataParallelOptions& options,
                                                               Outcome outcome = Outcome::everywhere);

    /// Returns a reducer of the same parameters over another group. Collective; throws as the constructor.
    [[nodiscard]] std::unique_ptr<GradientReducer> over(ProcessGroup& group) const;

    /// Returns the parameters with their current addresses, also during a step.
    [[nodiscard]] std::vector<ParameterRef> find_parameters() const { return parameters_.source().collect(); }

    /// Returns the elements of the buffers, in host memory, for restore_buffers().
    [[nodiscard]] std::vector<std::byte> copy_buffers() { return buffers_.copy(); }
    void restore_buffers(std::span<const std::byte> elements) { buffers_.write(elements); }

    GradientReducer(const GradientReducer&) = delete;
    GradientReducer& operator=(const GradientReducer&) = delete;

    /// Returns the parameters in registration order, with the addresses of the last step. With
    /// reduce_in_f32, the gradients are the averages in the buckets.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept {
        return options_.reduce_in_f32 ? averages_ : parameters_.refs();
    }

    /// Re-reads all addresses, including those of lazy gradients that exist. Call it between steps. Throws
    /// ArgumentError if the parameters have changed.
    void read_all_addresses();

    /// Returns the first of the parameters that have the gradient of parameter `i`.
    [[nodiscard]] std::size_t first_of_tied(std::size_t i) const { return parameters_.tied().first(i); }

    /// Returns whether the tied parameters are tied in their values as well, and no others are.
    [[nodiscard]] bool ties_values_as_gradients() const {
        return parameters_.tied().ties_values_as_gradients();
    }

    /// Broadcasts the values of rank `root`, except those of ignored parameters, and its buffers, at their
    /// current addresses. Collective, blocks. Throws ArgumentError on all ranks if the parameters or the
    /// buffers of a rank have changed since construction.
    void broadcast_values(int root = 0);

    /// As long as the result exists, messages say that the calls on group() are made by this call of the
    /// program, such as "synchronize()". For calls that end later, on a group of the reducer's own, messages
    /// say so until the next call.
    [[nodiscard]] PurposeScope purpose(const char* call);

    /// Returns the group on which buckets are sent. Between steps, the training may use it for other
    /// collectives.
    [[nodiscard]] ProcessGroup& group() noexcept { return *group_; }

    /// Returns the memory of gradient `i` in its bucket, aligned to 64 bytes. A program that computes
    /// gradients there avoids the copies into and out of the bucket. Buckets are not rebuilt after this
    /// call.
    [[nodiscard]] Buffer gradient_memory(std::size_t i);

    /// Returns the owner of the memory that gradient_memory(i) returns. Buckets are not rebuilt after this
    /// call.
    [[nodiscard]] std::shared_ptr<void> bucket_memory(std::size_t i);

    /// Throws, on all ranks, the errors of earlier steps on devices. Collective; blocks until these steps
    /// have finished.
    void check();

    /// Returns the buckets. Call it between steps. If the outcome is `in_parts`, only this rank's part of a
    /// bucket contains averages.
    [[nodiscard]] BucketSet& buckets() noexcept { return buckets_; }

    /// Throws ArgumentError if parameter `i` does not exist or is ignored.
    void check_in_bucket(std::size_t i) const;

    /// Returns the number of steps that have succeeded.
    [[nodiscard]] std::size_t steps() noexcept;

    [[nodiscard]] Outcome outcome() const noexcept { return outcome_; }

    /// Returns the operation that averages the buckets of the last step if the outcome is `unreduced`.
    [[nodiscard]] ReduceOp reduction() const noexcept { return reduction_; }

    /// Records, for statistics() and the timeline, that this rank has communicated from `begin` until now.
    /// Call it between steps.
    void record_communication(const char* name, trace::Clock::time_point begin);

    /// Returns the statistics of the steps so far.
    [[nodiscard]] DDPStatistics statistics();

    /// Sets a communication hook that sums the buckets from the next step on; null restores dptk's
    /// all-reduce. Throws MismatchError on all ranks if their hooks differ. Throws ArgumentError during a
    /// step. Also throws ArgumentError unless all gradients are in host memory, or all gradients and
    /// buffers are in device memory and the program has dptk's CUDA kernels. Collective.
    void set_comm_hook(std::shared_ptr<CommHook> hook);

    /// Begins a step on all ranks. Collective. Waits only for rank 0's buffers, if there are any. Under
    /// Ready::marked, gradients must stay at their addresses from the beginning of the step until
    /// synchronize() returns; otherwise synchronize() reads their addresses. Optional: without this call,
    /// the first mark or synchronize() begins the step.
    void begin_step();

    /// Begins a step in which this rank has `sample_count` samples. Either all ranks give a count, or none
    /// does.
    void begin_step(std::size_t sample_count) { begin(sample_count); }

    /// Reports that gradient `i` is complete. For Ready::marked. May be called from any thread. A bucket is
    /// sent as soon as all of its gradients are complete, except the last bucket, which synchronize()
    /// sends. If the ranks share memory and have no spare processors, synchronize() sends all buckets.
    /// Mistakes in marking are reported by synchronize(), which throws on all ranks.
    void mark_ready(std::size_t i) { mark(i, State::ready, nullptr); }

    /// Reports that the gradient that begins at this address is complete.
    void mark_ready_at(const void* gradient);

    /// Returns the index of a parameter. Throws ArgumentError if no parameter has this name.
    [[nodiscard]] std::size_t index_of(std::string_view name) const;

    /// Reports that lazy gradient `i` is complete. It must stay at `gradient` until synchronize() has
    /// returned.
    void mark_ready(std::size_t i, void* gradient) { mark(i, State::ready, gradient); }

    /// Reports that parameter `i` is unused in this step on this rank, which contributes zeros. For
    /// Ready::marked.
    void mark_unused(std::size_t i) { mark(i, State::unused, nullptr); }

    /// Ends the step: on return, the gradients are the average. Collective, blocks. If all gradients are in
    /// device memory and dptk's CUDA kernels are available, the host does not block: work that is enqueued
    /// on options.stream after this call reads the averages, and this call throws the errors of the
    /// previous step.
    ///
    /// Throws ArgumentError on all ranks if a gradient was not marked, or was marked twice; if a
    /// parameter's size has changed; or if only some ranks give a sample count. The gradients are then
    /// unspecified, and the next step may begin.
    void synchronize();

    /// Calls begin_step(sample_count) and synchronize().
    void synchronize(std::size_t sample_count);

    /// Ends the step without a result, for a rank whose backward has failed. The other ranks' synchronize()
    /// throws ArgumentError; the next step may then begin on all ranks. Gradients are unspecified. Does not
    /// throw if other ranks have failed, too. Collective with synchronize() and cancel_step() of the other
    /// ranks; blocks.
    void cancel_step();

    /// Takes part in a step of the other ranks after this rank has run out of samples: does their
    /// collectives, with zeros, and leaves its own gradients unchanged. Collective, blocks.
    void shadow();

    /// Sets, for subsequent steps, which ranks still have samples, and whether averages without sample
    /// counts are over these ranks only. The argument must be equal on all ranks.
    void set_joined(const JoinRound& round);

    /// Adds the gradients of a micro-batch of `sample_count` samples to internal sums, and sets the
    /// gradients to zero. The next step's average includes these samples. Each rank may call accumulate()
    /// any number of times between steps. If one rank has accumulated, all ranks must count samples in the
    /// next step, by accumulate() or by a sample count. On a rank that has accumulated, synchronize() or
    /// begin_step() without a count sends only the sums. Does not communicate.
    void accumulate(std::size_t sample_count);

    /// Returns the averages of the last step, for clipping and unscaling. Throws ArgumentError during a
    /// step.
    [[nodiscard]] GradientPostprocessing& averages();

    /// Makes steps and marks do nothing until leave_local_scope(). Scopes may nest. Throws ArgumentError
    /// during a step.
    void enter_local_scope();
    void leave_local_scope() noexcept;

  private:
    using State = GradientMarks::State;

    // ---- construction

    void check_options() const;

    [[nodiscard]] bool is_marked() const noexcept { return options_.ready == Ready::marked; }

    /// Returns the name of the class that has this reducer.
    [[nodiscard]] const char* owner() const noexcept {
        return outcome_ == Outcome::everywhere ? "DistributedDataParallel" : "ShardedOptimizer";
    }

    /// Throws MembershipChanged if the members of an elastic job change.
    void check_members() const;

    /// Returns one lane (a CUDA stream with its events and kernels) for each device that has gradients.
    /// Returns none if steps run on the host: if gradients or buffers are in host memory, if the outcome is
    /// not Outcome::everywhere, or if the program was built without dptk's CUDA kernels.
    [[nodiscard]] DeviceLanes make_lanes() const;

    void make_steps(DeviceLanes lanes);

    void make_buckets(const std::vector<std::size_t>& order);

    /// With reduce_in_f32, updates averages_.
    void read_averages();

    // ---- a step; begin() and mark() lock mutex_, the other functions below require that it is locked

    void begin(std::optional<std::size_t> sample_count);

    void check_counts_allowed() const;

    /// Throws ArgumentError during a step. `call` is the name of the call that is not allowed then.
    void check_not_begun(std::string_view call) const;

    void begin_locked(std::optional<std::size_t> sample_count);

    void begin_in_synchronize(std::optional<std::size_t> sample_count);

    void read_buffers();

    enum class LazyGradients { to_be_marked, found };

    void read_addresses(LazyGradients lazy = LazyGradients::to_be_marked);

    /// Re-reads the addresses at the end of a step with marks. Notes gradients that have moved.
    void read_addresses_again();

    void begin_among_ranks();

    /// In steps that compare the parameters' values between the ranks, computes this rank's hash. Collective,
    /// and blocks, if steps run on devices. Call it before the step begins among the ranks.
    void hash_values();

    /// Returns whether the step may proceed, as far as is known. Starts the exchange of status words
    /// between the ranks, and sends rank 0's buffers.
    [[nodiscard]] bool may_proceed();

    /// Throws ArgumentError, and resets the step, if the step cannot be captured into a CUDA graph, since
    /// the host takes part in the step.
    void check_capturable();

    void mark(std::size_t i, State state, void* gradient);

    void mark_address(const void* gradient);
    void mark_locked(std::size_t i, State state, void* gradient);

    /// Begins a step at its first mark; `what` names the gradient.
    void begin_by_mark(std::string_view what);

    void note_mark(std::size_t i, State state);

    /// Sets the address of a lazy gradient. Notes a problem if a lazy gradient is marked without an
    /// address, or if another gradient is marked with an address.
    void set_lazy_gradient(std::size_t i, void* gradient);

    /// Notes a problem if two lazy gradients have the same address.
    void check_lazy_gradients();

    /// Finds the addresses of lazy gradients that are not known yet, so that averages can be written to
    /// them. Leaves out the gradients of parameters that no rank uses.
    void find_gradients();

    /// Runs a part of a step, and adds the number of the step to its errors.
    template <class Part>
    void in_step(Part&& part) {
        const std::size_t step = clock_ ? clock_->statistics().steps : 0;
        try {
            part();
        } catch (const Error& error) {
            ErrorAccess::add_step(error, step);
            throw;
        }
    }

    void end_step();

    /// Fills and sends the next bucket.
    void launch();

    /// Returns whether the gradient is copied into its bucket, instead of zeros. A gradient that is not
    /// marked does not take part.
    [[nodiscard]] bool takes_part(std::size_t i);

    /// Rebuilds the buckets, unless they have been rebuilt or must stay as they are.
    void rebuild();

    [[noreturn]] void throw_problems();

    void reset_step();

    [[nodiscard]] bool may_communicate_here() const;

    /// Returns whether the step header and buckets are sent before synchronize().
    [[nodiscard]] bool sends_early() const;

    void check_index(std::size_t i) const;

    ModelParameters parameters_;
    DistributedDataParallelOptions options_;
    Outcome outcome_;
    std::size_t verify_every_;  // 0: never
    std::shared_ptr<CommHook> hook_;
    std::unique_ptr<ProcessGroup> own_group_;
    ProcessGroup* group_ = nullptr;
    ModelBuffers buffers_;
    BucketSet buckets_;
    std::vector<ParameterRef> averages_;  // with reduce_in_f32: the parameters, with their averages
    bool pinned_ = false;                 // the address of a bucket was returned to the caller
    bool rebuilt_ = false;
    const JobState* elastic_job_ = nullptr;  // null if the members of the group do not change
    const ProcessGroup* awaited_group_ = nullptr;

    std::mutex mutex_;
    int local_scopes_ = 0;
    bool begun_ = false;
    bool overlaps_ = false;  // whether this step may communicate before synchronize()
    bool buffers_are_sent_ = false;
    LocalStep own_;
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
