/// Averages gradients over ranks, bucket by bucket, while backward goes on where the gradients are marked. It
/// knows nothing of layers, values or optimizers: DistributedDataParallel adds what a training loop needs.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/control/agreed_errors.hpp"
#include "dptk/core/text.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/ddp/averages.hpp"
#include "dptk/ddp/bucket_set.hpp"
#include "dptk/ddp/device_lanes.hpp"
#include "dptk/ddp/device_steps.hpp"
#include "dptk/ddp/gradient_marks.hpp"
#include "dptk/ddp/gradient_steps.hpp"
#include "dptk/ddp/host_steps.hpp"
#include "dptk/ddp/join_round.hpp"
#include "dptk/ddp/launch_order.hpp"
#include "dptk/ddp/model_buffers.hpp"
#include "dptk/ddp/model_parameters.hpp"
#include "dptk/ddp/model_table.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/ddp/parameter_source.hpp"
#include "dptk/ddp/statistics.hpp"
#include "dptk/ddp/step_clock.hpp"
#include "dptk/ddp/unused_parameters.hpp"

namespace dptk {

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
    using Outcome = detail::BucketSet::Outcome;

    /// Compares parameters and options on all ranks: collective. Throws on all ranks alike: MismatchError
    /// where they differ, ArgumentError where a rank's parameters or options are unusable. The group must
    /// outlive the reducer.
    GradientReducer(ProcessGroup& group, ParameterSource source, DistributedDataParallelOptions options = {},
                    Outcome outcome = Outcome::everywhere)
        : parameters_(std::move(source)), options_(std::move(options)), outcome_(outcome), unused_(options_) {
        if (std::unique_ptr<Channel> own = group.channel().duplicate()) {
            own_group_ = std::make_unique<ProcessGroup>(std::move(own));
        }
        group_ = own_group_ ? own_group_.get() : &group;

        std::string problem;
        std::string device_problem;
        detail::DeviceLanes lanes;
        try {
            parameters_.find(options_);
            buffers_ = detail::ModelBuffers(options_);
            check_options();
            lanes = make_lanes();
        } catch (const BackendError& error) {
            device_problem = error.what();
        } catch (const std::exception& error) {  // also of the program's own for_each_parameter
            problem = error.what();
        }
        detail::check_no_problem<ArgumentError>(*group_, problem);
        detail::check_no_problem<BackendError>(*group_, device_problem);
        detail::check_equal_tables(
            *group_, "models",
            detail::model_table(options_, parameters_.refs(), parameters_.ignored(), buffers_.buffers()) +
                (lanes.empty() ? "" : "\nsteps by kernels"));
        make_steps(std::move(lanes));
        make_buckets(detail::first_launch_order(parameters_.ignored()));
        clock_.emplace(*group_);
        clock_->statistics().first_bucket_bytes = buckets_.gradient_bytes(parameters_.refs());
    }

    GradientReducer(const GradientReducer&) = delete;
    GradientReducer& operator=(const GradientReducer&) = delete;

    /// The parameters in registration order, with the addresses of the last step.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept { return parameters_.refs(); }

    /// Gives all ranks the values of rank `root`, but of parameters that are ignored, and its buffers.
    /// Collective, blocks.
    void broadcast_values(int root = 0) {
        buffers_.broadcast(*group_, root, options_.stream);
        parameters_.broadcast_values(*group_, root, options_.stream);
    }

    /// The group that carries the buckets. Between steps it may serve other collectives of the same training.
    [[nodiscard]] ProcessGroup& group() noexcept { return *group_; }

    /// Where gradient `i` lies in its bucket. Whoever computes gradients straight into this memory saves the
    /// copies in and out. Aligned to 64 bytes. From now on buckets stay as they are.
    [[nodiscard]] Buffer gradient_memory(std::size_t i) {
        const std::lock_guard lock(mutex_);
        check_in_bucket(i);
        pinned_ = true;
        return buckets_.gradient(i, parameters_[i].count);
    }

    /// What keeps that memory alive.
    [[nodiscard]] std::shared_ptr<void> bucket_memory(std::size_t i) const {
        check_in_bucket(i);
        return buckets_[buckets_.place(i).bucket].memory();
    }

    /// Throws what is wrong with the steps on devices so far, on all ranks alike. Collective, blocks until
    /// they are over.
    void check() {
        const std::lock_guard lock(mutex_);
        check_not_begun();
        if (!steps_->was_well(own_)) throw_problems();
    }

    /// Between steps; where the outcome is in parts, each rank's part of each has its averages.
    [[nodiscard]] detail::BucketSet& buckets() noexcept { return buckets_; }

    /// Throws ArgumentError for a parameter that there is not, or that is ignored.
    void check_in_bucket(std::size_t i) const {
        check_index(i);
        if (!buckets_.has(i))
            throw ArgumentError(detail::text("parameter ", parameters_[i].name, " is ignored"));
    }

    /// How many have ended well.
    [[nodiscard]] std::size_t steps() noexcept { return clock_->statistics().steps; }

    /// What makes averages of the buckets of the last step, where they are unreduced.
    [[nodiscard]] ReduceOp reduction() const noexcept { return reduction_; }

    /// Of the steps so far.
    [[nodiscard]] DdpStatistics statistics() {
        const std::lock_guard lock(mutex_);
        DdpStatistics now = clock_->statistics();
        now.bucket_bytes = buckets_.gradient_bytes(parameters_.refs());
        return now;
    }

    /// From the next step on, buckets are summed by the hook; null for the all-reduce of dptk's own. Throws
    /// MismatchError on all ranks where they set different ones, and ArgumentError in the middle of a step,
    /// or where some gradients are in device memory, and not all of them and the buffers, or without dptk's
    /// kernels. Collective.
    void set_comm_hook(std::shared_ptr<CommHook> hook) {
        const std::lock_guard lock(mutex_);
        check_not_begun();
        detail::check_equal_tables(*group_, "hooks", hook ? hook->description() : std::string("none"));
        steps_->set_hook(std::move(hook));
    }

    /// Begins a step on all ranks: collective. Does not wait for the others, but for rank 0's buffers where
    /// there are any. Under Ready::marked, gradients stay where they are from here, or from the first mark,
    /// until synchronize() returns; otherwise their addresses are read in synchronize(). Optional without a
    /// sample count: the first mark or synchronize() begins a step by itself.
    void begin_step() { begin(std::nullopt); }

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
    void synchronize() {
        const std::lock_guard lock(mutex_);
        if (local_scopes_ > 0) return;
        if (!begun_) begin_locked(std::nullopt);
        end_step();
    }

    /// begin_step(sample_count) and synchronize() in one.
    void synchronize(std::size_t sample_count) {
        const std::lock_guard lock(mutex_);
        check_counts_allowed();
        check_not_begun();
        begin_locked(sample_count);
        end_step();
    }

    /// synchronize() of a rank that has run out of samples while others have not: it makes their collectives,
    /// with zeros, and its own gradients stay as they are. Collective, blocks.
    void shadow() {
        const std::lock_guard lock(mutex_);
        check_not_begun();
        own_.is_shadow = true;
        begin_locked(0);
        end_step();
    }

    /// Of the steps that follow: which ranks still have samples, and whether averages without sample counts
    /// are over these alone. The same on all ranks.
    void set_joined(const JoinRound& round) {
        const std::lock_guard lock(mutex_);
        check_not_begun();
        steps_->set_joined(round);
    }

    /// Takes the gradients of a micro-batch of `sample_count` samples into sums of dptk's own, and sets them
    /// to zero. The next step's average is over these samples, too. Between steps, on any ranks, each any
    /// number of times; a step of which a rank has accumulated counts samples on all ranks, and synchronize()
    /// or begin_step() without a count then send what was accumulated alone. Does not communicate.
    void accumulate(std::size_t sample_count) {
        const std::lock_guard lock(mutex_);
        if (begun_) return own_.note("accumulate() in the middle of a step");
        read_addresses(Late::found);
        if (!own_.has_addresses || !own_.problem.empty()) return;
        if (!steps_->lanes() && !buckets_.devices().empty())
            return own_.note(
                "accumulate() is for gradients that are all in host memory, or all in device "
                "memory, in a program with dptk's kernels");
        steps_->accumulate(sample_count);
    }

    /// Those of the last step, to clip or unscale. Throws ArgumentError in the middle of a step.
    [[nodiscard]] detail::Averages& averages() {
        const std::lock_guard lock(mutex_);
        check_not_begun();
        return *averages_;
    }

    /// While it lives, steps and marks do nothing: gradients add up in the program's own memory.
    class NoSync {
      public:
        explicit NoSync(GradientReducer& reducer) : reducer_(reducer) {
            const std::lock_guard lock(reducer_.mutex_);
            reducer_.check_not_begun();
            ++reducer_.local_scopes_;
        }
        ~NoSync() {
            const std::lock_guard lock(reducer_.mutex_);
            --reducer_.local_scopes_;
        }
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

      private:
        GradientReducer& reducer_;
    };

  private:
    using State = detail::GradientMarks::State;

    // ---- construction

    void check_options() const {
        detail::BucketSet::check_caps(options_);
        if (options_.find_unused_parameters && options_.ready != Ready::marked)
            throw ArgumentError(
                "find_unused_parameters needs Ready::marked: nothing but marks tells which parameters take "
                "part in a step");
        if (options_.find_unused_parameters && outcome_ != Outcome::everywhere)
            throw ArgumentError("find_unused_parameters is not for sharded gradients");
        if (outcome_ != Outcome::everywhere) {
            detail::require_host_memory(parameters_.refs(), "a sharded optimizer");
            detail::require_lasting_gradients(parameters_.refs(), "a sharded optimizer");
        }
        if (!is_marked()) detail::require_lasting_gradients(parameters_.refs(), "Ready::at_synchronize");
    }

    [[nodiscard]] bool is_marked() const noexcept { return options_.ready == Ready::marked; }

    /// None where the host has a part in each step.
    [[nodiscard]] detail::DeviceLanes make_lanes() const {
        detail::DeviceLanes lanes;
        const bool has_host_buffers = buffers_.has_any() && !buffers_.are_on_devices();
        if (outcome_ == Outcome::everywhere && !has_host_buffers)
            lanes = detail::DeviceLanes::make(
                parameters_.refs(), detail::first_launch_order(parameters_.ignored()), options_.stream);
        if (options_.stream != StreamRef() && lanes.empty())
            throw ArgumentError(
                "a stream is for gradients that are all in device memory, as are the buffers, in a program "
                "with dptk's kernels");
        for (const Buffer& buffer : buffers_.buffers()) {
            if (buffer.on_device() && !lanes.has(buffer.device))
                throw ArgumentError(
                    detail::text("a buffer is on ", device_name(buffer.device),
                                 ", where it can be with gradients that are all in device memory, and some "
                                 "of them there, in a program with dptk's kernels"));
        }
        return lanes;
    }

    void make_steps(detail::DeviceLanes lanes) {
        const bool is_own = own_group_ != nullptr;
        if (lanes.empty()) {
            steps_ = std::make_unique<detail::HostSteps>(*group_, parameters_, buckets_, outcome_, is_own,
                                                         is_marked());
        } else {
            steps_ = std::make_unique<detail::DeviceSteps>(*group_, parameters_, buckets_, std::move(lanes),
                                                           is_own);
        }
        averages_.emplace(*group_, parameters_, buckets_, *steps_);
    }

    void make_buckets(const std::vector<std::size_t>& order) {
        const bool on_device = steps_->lanes() != nullptr;
        steps_->take_new_buckets();
        buckets_ = detail::BucketSet(*group_, parameters_.refs(), order, options_, outcome_, on_device);
        reset_step();
    }

    // ---- a step; all below with mutex_ held

    void begin(std::optional<std::size_t> sample_count) {
        const std::lock_guard lock(mutex_);
        if (sample_count) check_counts_allowed();
        if (local_scopes_ > 0) return;
        check_not_begun();
        begin_locked(sample_count);
        if (leaves_early()) begin_among_ranks();
        if (buffers_.has_any() && may_communicate_here()) static_cast<void>(goes_on());
    }

    void check_counts_allowed() const {
        if (local_scopes_ == 0) return;
        throw ArgumentError(
            detail::text("rank ", group_->rank(),
                         ": a sample count inside no_sync, which weighs all micro-batches the "
                         "same; accumulate(n) weighs them by their samples"));
    }

    void check_not_begun() const {
        if (!begun_) return;
        throw ArgumentError(detail::text("rank ", group_->rank(),
                                         ": a step begins in the middle of another; synchronize(), without a "
                                         "sample count, ends the one that begin_step or a mark has begun"));
    }

    void begin_locked(std::optional<std::size_t> sample_count) {
        begun_ = true;
        clock_->begin();
        own_.number = clock_->statistics().steps;
        own_.samples = sample_count;
        if (!own_.samples && steps_->has_accumulated()) own_.samples = 0;
        read_buffers();
        if (!is_marked()) return;
        read_addresses();
        if (own_.samples != std::size_t{0}) return;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (buckets_.has(i)) marks_.mark(i, State::unused, buckets_);
        }
    }

    void read_buffers() {
        try {
            buffers_.read();
        } catch (const std::exception& error) {  // also of the program's own ranges
            own_.note(error.what());
            own_.has_buffers = false;
        }
    }

    enum class Late { to_be_marked, found };

    void read_addresses(Late late = Late::to_be_marked) {
        try {
            parameters_.read_addresses();
            for (std::size_t i = 0; late == Late::found && i < parameters_.size(); ++i)
                if (buckets_.has(i)) parameters_.find_gradient(i, IfMissing::null);
            if (options_.gradient_as_bucket_view) buckets_.check_views(parameters_.refs());
        } catch (const std::exception& error) {  // also of the program's own for_each_parameter
            own_.note(error.what());
            own_.has_addresses = false;
        }
    }

    void begin_among_ranks() {
        if (steps_->is_captured()) check_capturable();
        steps_->begin(own_);
    }

    /// Whether the step goes on, as far as is known; begins it among the ranks, and sends rank 0's buffers.
    [[nodiscard]] bool goes_on() {
        if (!steps_->has_begun() && steps_->is_captured()) check_capturable();
        if (!steps_->goes_on(own_)) return false;
        if (buffers_.has_any() && !std::exchange(buffers_are_sent_, true))
            steps_->send(buffers_, steps_->joined().first, own_);
        return true;
    }

    /// Throws ArgumentError where the host has a part in the step, which has not begun then.
    void check_capturable() {
        try {
            const bool settled = rebuilt_ || !is_marked() || options_.gradient_as_bucket_view;
            if (!settled || options_.find_unused_parameters)
                throw ArgumentError(
                    detail::text("rank ", group_->rank(),
                                 ": a step is captured into a CUDA graph before buckets are "
                                 "settled, which two steps do, or with find_unused_parameters"));
            steps_->check_capturable();
        } catch (...) {
            reset_step();
            throw;
        }
    }

    void mark(std::size_t i, State state, void* gradient) {
        check_index(i);
        const std::lock_guard lock(mutex_);
        if (local_scopes_ > 0 || !buckets_.has(i)) return;
        if (!begun_) {
            if (steps_->has_accumulated())
                own_.note(detail::text("gradient ", parameters_[i].name,
                                       " is marked behind accumulate(), without begin_step(n)"));
            begin_locked(std::nullopt);
        }
        // Begun early, the ranks' words have arrived when the first bucket is full.
        if (is_marked() && !steps_->has_begun() && leaves_early()) begin_among_ranks();
        if (own_.samples == std::size_t{0}) return;
        note_mark(i, state);
        if (state == State::ready && is_marked()) take_gradient(i, gradient);
        if (!leaves_early()) return;
        // The last bucket stays for synchronize(): it carries the status, and a mistake may still come.
        while (steps_->next() + 1 < buckets_.size() && marks_.is_complete(steps_->next())) {
            if (!goes_on()) return;
            launch();
        }
    }

    void note_mark(std::size_t i, State state) {
        if (!is_marked()) return own_.note("a gradient is marked, but the option is Ready::at_synchronize");
        if (!marks_.mark(i, state, buckets_))
            own_.note(detail::text("gradient ", parameters_[i].name, " was marked twice"));
        if (state == State::ready && unused_.is_out_for_good(i))
            own_.note(detail::text("static_graph: gradient ", parameters_[i].name,
                                   " is ready, and no rank has used its parameter in the first step"));
    }

    /// A late gradient, and no other, is marked with its address.
    void take_gradient(std::size_t i, void* gradient) {
        const ParameterRef& parameter = parameters_[i];
        const bool is_late = static_cast<bool>(parameter.late_gradient);
        if (parameter.count == 0 || (!is_late && gradient == nullptr)) return;
        if (!is_late)
            return own_.note(
                detail::text("gradient ", parameter.name, " is marked with an address, and is no late one"));
        if (gradient == nullptr)
            return own_.note(
                detail::text("the late gradient ", parameter.name, " is marked without its address"));
        parameters_.set_gradient(i, gradient);
        if (options_.gradient_as_bucket_view && !buckets_.is_view(i, parameter))
            own_.note(buckets_.view_problem(i, parameter));
    }

    /// Late gradients that are not known yet, for averages to go there, but for those of no rank.
    void find_gradients() {
        if (!own_.has_addresses || own_.is_shadow) return;
        break_job_unless_agreed(group_->channel().job(), [&] {
            for (std::size_t i = 0; i < parameters_.size(); ++i) {
                if (buckets_.has(i) && !unused_[i]) parameters_.find_gradient(i, IfMissing::make);
            }
        });
    }

    void end_step() {
        clock_->end_compute();
        const trace::Span span("synchronize");
        if (!is_marked()) read_addresses();
        if (!goes_on()) throw_problems();
        while (steps_->next() < buckets_.size()) launch();
        // Behind all buckets: some have left before all marks are known, and not the same ones on all ranks.
        unused_.exchange(
            *group_, parameters_.size(),
            steps_->has_accumulated() ? detail::first_launch_order(parameters_.ignored()) : marks_.arrived());
        find_gradients();
        reduction_ = steps_->reduction(own_);
        if (!steps_->finish(own_, unused_, *clock_)) throw_problems();
        clock_->end_step(marks_.arrived());
        rebuild();
        reset_step();
    }

    /// The next bucket.
    void launch() {
        takes_part_.clear();
        for (const std::size_t i : buckets_[steps_->next()].indices()) takes_part_.push_back(takes_part(i));
        steps_->launch(own_, takes_part_);
    }

    /// Whether a gradient goes into its bucket, and no zeros. One that waits for its mark takes no part.
    [[nodiscard]] bool takes_part(std::size_t i) {
        if (is_marked() && marks_[i] == State::waiting) {
            if (!options_.find_unused_parameters)
                own_.note(detail::text("gradient ", parameters_[i].name,
                                       " was neither marked ready nor unused before synchronize()"));
            marks_.mark(i, State::unused, buckets_);
        }
        const bool is_there = parameters_[i].gradient != nullptr || parameters_[i].count == 0;
        return marks_[i] != State::unused && is_there && own_.has_addresses && !own_.is_shadow;
    }

    /// Makes the buckets anew, once.
    void rebuild() {
        const bool may_change = options_.find_unused_parameters && !options_.static_graph;
        const bool must_stay = options_.gradient_as_bucket_view || outcome_ != Outcome::everywhere;
        if (rebuilt_ || !is_marked() || may_change || must_stay) return;
        const detail::NewOrder agreed = detail::agree_on_order(
            *group_, pinned_, marks_.arrived(), detail::first_launch_order(parameters_.ignored()));
        rebuilt_ = agreed.is_settled;
        if (!agreed.order.empty()) make_buckets(agreed.order);
    }

    [[noreturn]] void throw_problems() {
        const std::string problems = detail::gather_problems(*group_, own_.problem);
        steps_->forget_sums();
        unused_.forget();
        reset_step();
        detail::throw_agreed(*group_, ArgumentError("synchronize: " + problems));
    }

    void reset_step() {
        begun_ = false;
        buffers_are_sent_ = false;
        own_ = {};
        steps_->reset();
        marks_.reset(parameters_.size(), buckets_);
    }

    [[nodiscard]] bool may_communicate_here() const {
        return own_group_ != nullptr && group_->channel().callable_from_this_thread();
    }

    /// Whether words and buckets leave before synchronize().
    [[nodiscard]] bool leaves_early() const { return may_communicate_here() && steps_->overlaps(); }

    void check_index(std::size_t i) const {
        if (i >= parameters_.size()) {
            throw ArgumentError(detail::text("rank ", group_->rank(), ": there is no parameter ", i,
                                             " among ", parameters_.size()));
        }
    }

    detail::ModelParameters parameters_;
    DistributedDataParallelOptions options_;
    Outcome outcome_;
    std::unique_ptr<ProcessGroup> own_group_;
    ProcessGroup* group_ = nullptr;
    detail::ModelBuffers buffers_;
    detail::BucketSet buckets_;
    bool pinned_ = false;  // somebody knows the memory of a bucket
    bool rebuilt_ = false;

    std::mutex mutex_;
    int local_scopes_ = 0;
    bool begun_ = false;
    bool buffers_are_sent_ = false;
    detail::OwnStep own_;
    ReduceOp reduction_ = ReduceOp::avg;
    detail::GradientMarks marks_;
    std::vector<bool> takes_part_;  // by position in the next bucket
    detail::UnusedParameters unused_;
    std::optional<detail::StepClock> clock_;
    std::unique_ptr<detail::GradientSteps> steps_;
    std::optional<detail::Averages> averages_;
};

}  // namespace dptk
