/// Averages gradients over ranks, bucket by bucket, while backward goes on where the gradients are marked. It
/// knows nothing of layers, values or optimizers: DistributedDataParallel adds what a training loop needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
#include "dptk/core/log.hpp"
#include "dptk/ddp/bucket_set.hpp"
#include "dptk/ddp/bucket_traffic.hpp"
#include "dptk/ddp/device_steps.hpp"
#include "dptk/ddp/gradient_accumulator.hpp"
#include "dptk/ddp/gradient_marks.hpp"
#include "dptk/ddp/join_round.hpp"
#include "dptk/ddp/launch_order.hpp"
#include "dptk/ddp/model_buffers.hpp"
#include "dptk/ddp/model_parameters.hpp"
#include "dptk/ddp/model_table.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/ddp/parameter_source.hpp"
#include "dptk/ddp/statistics.hpp"
#include "dptk/ddp/step_clock.hpp"
#include "dptk/ddp/step_header.hpp"
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
        traffic_.emplace(*group_, own_group_ != nullptr, outcome_);

        std::string problem;
        std::string device_problem;
        try {
            parameters_.find(options_);
            buffers_ = detail::ModelBuffers(options_);
            check_options();
            if (outcome_ == Outcome::everywhere && !buffers_.has_any()) {
                on_device_ = detail::DeviceSteps::make(
                    parameters_.refs(), detail::first_launch_order(parameters_.ignored()), options_.stream);
            }
            if (options_.stream != StreamRef() && !on_device_)
                throw ArgumentError(
                    "a stream is for gradients that are all in device memory, without buffers, in a program "
                    "with dptk's kernels");
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
                (on_device_ ? "\nsteps by kernels" : ""));
        make_buckets(detail::first_launch_order(parameters_.ignored()));
        clock_.emplace(*group_);
        clock_->statistics().first_bucket_bytes = buckets_.gradient_bytes(parameters_.refs());
    }

    /// Logs what is wrong with a step on devices that nobody has heard of yet; blocks until they are over.
    ~GradientReducer() {
        const bool is_amid = begun_ || std::uncaught_exceptions() > uncaught_exceptions_;
        if (!on_device_ || is_amid || group_->channel().control().health()->failed()) return;
        try {
            if (on_device_->was_bad(true))
                log(LogLevel::error, group_->rank(),
                    detail::text("the last step on the devices was a mistake of some rank; of this one: ",
                                 last_step_.problem.empty() ? "none" : last_step_.problem));
        } catch (const std::exception& error) {
            log(LogLevel::error, group_->rank(), error.what());
        }
    }

    GradientReducer(const GradientReducer&) = delete;
    GradientReducer& operator=(const GradientReducer&) = delete;

    /// The parameters in registration order, with the addresses of the last step.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept { return parameters_.refs(); }

    /// Gives all ranks the values of rank `root`, but of parameters that are ignored, and its buffers.
    /// Collective, blocks.
    void broadcast_values(int root = 0) {
        buffers_.broadcast(*group_, root);
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

    /// Throws what is wrong with the steps on devices so far, on all ranks alike. Collective, blocks until
    /// they are over.
    void check() {
        const std::lock_guard lock(mutex_);
        check_not_begun();
        if (on_device_) throw_if_bad(std::exchange(last_step_, {}), true);
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
    /// or where gradients are in device memory. Collective.
    void set_comm_hook(std::shared_ptr<CommHook> hook) {
        const std::lock_guard lock(mutex_);
        check_not_begun();
        detail::check_equal_tables(*group_, "hooks", hook ? hook->description() : std::string("none"));
        if (hook && !buckets_.devices().empty())
            detail::throw_agreed(*group_, ArgumentError("hooks are for gradients in host memory"));
        traffic_->set_hook(std::move(hook));
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
    void mark_ready(std::size_t i) { mark(i, State::ready); }

    /// Under Ready::marked: parameter `i` takes no part in this step on this rank, which contributes zeros.
    void mark_unused(std::size_t i) { mark(i, State::unused); }

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
        is_shadow_ = true;
        begin_locked(0);
        end_step();
    }

    /// Of the steps that follow: which ranks still have samples, and whether averages without sample counts
    /// are over these alone. The same on all ranks.
    void set_joined(const JoinRound& round) {
        const std::lock_guard lock(mutex_);
        check_not_begun();
        round_ = round;
    }

    /// Takes the gradients of a micro-batch of `sample_count` samples into sums of dptk's own, and sets them
    /// to zero. The next step's average is over these samples, too. Between steps, on any ranks, each any
    /// number of times; a step of which a rank has accumulated counts samples on all ranks, and synchronize()
    /// or begin_step() without a count then send what was accumulated alone. Does not communicate.
    void accumulate(std::size_t sample_count) {
        const std::lock_guard lock(mutex_);
        if (begun_) return note_problem("accumulate() in the middle of a step");
        read_addresses();
        const auto takes = [&](std::size_t i) { return buckets_.has(i); };
        if (on_device_ && addresses_are_good_ && problem_.empty()) {
            guarded([&] { on_device_->accumulate(parameters_.refs(), sample_count, takes); });
            return accumulator_.count(sample_count);
        }
        note_failure_of([&] { detail::require_host_memory(parameters_.refs(), "accumulate()"); });
        if (addresses_are_good_ && problem_.empty())
            accumulator_.add(parameters_.refs(), sample_count, takes);
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
        if (outcome_ != Outcome::everywhere)
            detail::require_host_memory(parameters_.refs(), "a sharded optimizer");
    }

    [[nodiscard]] bool is_marked() const noexcept { return options_.ready == Ready::marked; }

    void make_buckets(const std::vector<std::size_t>& order) {
        buckets_ =
            detail::BucketSet(*group_, parameters_.refs(), order, options_, outcome_, on_device_ != nullptr);
        reset_step();
    }

    // ---- a step; all below with mutex_ held

    void begin(std::optional<std::size_t> sample_count) {
        const std::lock_guard lock(mutex_);
        if (sample_count) check_counts_allowed();
        if (local_scopes_ > 0) return;
        check_not_begun();
        begin_locked(sample_count);
        if (leaves_early()) start_header();
        if (buffers_.has_any() && may_communicate_here()) ensure_header();
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
        samples_ = sample_count;
        if (!samples_ && accumulator_.has_any()) samples_ = 0;
        note_failure_of([&] { buffers_.read(); });
        if (!is_marked()) return;
        read_addresses();
        if (samples_ != std::size_t{0}) return;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (buckets_.has(i)) marks_.mark(i, State::unused, buckets_);
        }
    }

    void read_addresses() {
        try {
            parameters_.read_addresses();
            if (options_.gradient_as_bucket_view) buckets_.check_views(parameters_.refs());
        } catch (const std::exception& error) {  // also of the program's own for_each_parameter
            note_problem(error.what());
            addresses_are_good_ = false;
        }
    }

    /// Rank 0's buffers, to all ranks.
    void send_buffers() {
        if (std::exchange(buffers_are_sent_, true) || !buffers_.has_any() || !header_is_good()) return;
        buffers_.broadcast(*group_, round_.first);
    }

    template <class Action>
    void note_failure_of(Action&& action) {
        try {
            action();
        } catch (const std::exception& error) {  // also of the program's own for_each_parameter
            note_problem(error.what());
        }
    }

    [[nodiscard]] detail::StepHeader::Own own_header() const {
        return {samples_, accumulator_.samples(), !problem_.empty(), is_shadow_};
    }

    void start_header() {
        if (on_device_) return guarded([&] { on_device_->begin(*group_, own_header()); });
        header_.start(*group_, own_header());
    }

    [[nodiscard]] bool has_header() const {
        return on_device_ ? on_device_->has_begun() : header_.has_started();
    }

    /// Waits until the header is reduced; from then on the weight of this rank's gradients is known. On
    /// devices they alone come to know it.
    void ensure_header() {
        if (on_device_) {
            if (on_device_->is_captured()) check_capturable();
            if (!has_header()) start_header();
            return;
        }
        if (!header_.has_started()) header_.run(*group_, own_header());
        header_.wait();
        if (is_shadow_ && !header_.does_any_count()) samples_.reset();
        send_buffers();
    }

    /// Throws ArgumentError where the host has a part in the step.
    void check_capturable() const {
        const bool settled = rebuilt_ || !is_marked() || options_.gradient_as_bucket_view;
        if (settled && !options_.find_unused_parameters) return;
        throw ArgumentError(detail::text(
            "rank ", group_->rank(),
            ": a step is captured into a CUDA graph before buckets are settled, which two steps do, or with "
            "find_unused_parameters"));
    }

    [[nodiscard]] bool header_is_good() {
        if (on_device_) return true;
        const bool some_count = header_.do_some_count();
        if (some_count && problem_.empty()) {
            if (samples_ && accumulator_.has_any()) {
                note_problem(detail::text("has accumulated ", accumulator_.samples(), " samples"));
            } else {
                note_count(samples_);
            }
        }
        return !header_.is_any_in_trouble() && !some_count;
    }

    void mark(std::size_t i, State state) {
        check_index(i);
        const std::lock_guard lock(mutex_);
        if (local_scopes_ > 0 || !buckets_.has(i)) return;
        if (!begun_) {
            if (accumulator_.has_any())
                note_problem(detail::text("gradient ", parameters_[i].name,
                                          " is marked behind accumulate(), without begin_step(n)"));
            begin_locked(std::nullopt);
        }
        // Started early, the header has arrived when the first bucket is full.
        if (is_marked() && !has_header() && leaves_early()) start_header();
        if (samples_ == std::size_t{0}) return;
        note_mark(i, state);
        if (!leaves_early()) return;
        // The last bucket stays for synchronize(): it carries the status, and a mistake may still come.
        while (traffic_->next() + 1 < buckets_.size() && marks_.is_complete(traffic_->next())) {
            ensure_header();
            if (!header_is_good()) return;
            fill_and_launch();
        }
    }

    void note_mark(std::size_t i, State state) {
        if (!is_marked())
            return note_problem("a gradient is marked, but the option is Ready::at_synchronize");
        if (!marks_.mark(i, state, buckets_))
            note_problem(detail::text("gradient ", parameters_[i].name, " was marked twice"));
        if (state == State::ready && unused_.is_out_for_good(i))
            note_problem(detail::text("static_graph: gradient ", parameters_[i].name,
                                      " is ready, and no rank has used its parameter in the first step"));
    }

    void note_problem(std::string problem) {
        if (problem_.empty()) problem_ = std::move(problem);
    }

    void end_step() {
        clock_->end_compute();
        const trace::Span span("synchronize");
        if (!is_marked()) read_addresses();
        ensure_header();
        if (!header_is_good()) throw_problems();
        while (traffic_->next() < buckets_.size()) fill_and_launch();
        // Behind all buckets: some have left before all marks are known, and not the same ones on all ranks.
        unused_.exchange(
            *group_, parameters_.size(),
            accumulator_.has_any() ? detail::first_launch_order(parameters_.ignored()) : marks_.arrived());
        if (on_device_) return end_device_step();
        const bool is_carried = traffic_->carries_status(buckets_);
        bool failed = !is_carried && any_problem();
        for (std::size_t b = 0; b < buckets_.size(); ++b) {
            const detail::BucketTraffic::Trip trip = traffic_->wait(b);
            if (outcome_ != Outcome::unreduced) clock_->note_trip(b, buckets_[b].gradients().bytes(), trip);
            guarded([&] { empty(b); });
            const bool has_status = b + 1 == buckets_.size() && is_carried;
            failed = failed || (has_status && buckets_[b].status());
        }
        guarded([&] {
            for (const int device : buckets_.devices()) detail::device_calls().synchronize(device);
        });
        if (failed) throw_problems();
        accumulator_.clear();
        clock_->end_step(marks_.arrived());
        rebuild();
        reset_step();
    }

    void end_device_step() {
        const detail::GradientBucket& last = buckets_[buckets_.size() - 1];
        guarded([&] {
            for (std::size_t b = 0; b < buckets_.size(); ++b) empty_on_device(b);
            on_device_->end(last);
        });
        const auto now = trace::Clock::now();
        for (std::size_t b = 0; b < buckets_.size(); ++b)
            clock_->note_trip(b, buckets_[b].gradients().bytes(), {now, now});
        clock_->end_step(marks_.arrived());
        accumulator_.clear();
        if (!on_device_->is_captured()) {  // a graph's steps are judged when it is launched
            const OwnStep before = std::exchange(last_step_, {std::move(problem_), samples_});
            problem_.clear();
            throw_if_bad(before, false);
        }
        rebuild();
        reset_step();
    }

    /// What this rank knows of a step that the devices have judged.
    struct OwnStep {
        std::string problem;
        std::optional<std::size_t> samples;
    };

    /// \param all also the last one that was judged
    void throw_if_bad(const OwnStep& step, bool all) {
        bool is_bad = false;
        guarded([&] { is_bad = on_device_->was_bad(all); });
        group_->channel().control().health()->check();  // what was broken off looks like any other end
        if (!is_bad) return;
        problem_ = step.problem;
        if (!any_problem()) note_count(step.samples);
        throw_problems();
    }

    void note_count(const std::optional<std::size_t>& samples) {
        note_problem(samples ? detail::text("begins the step with a sample count of ", *samples)
                             : "begins the step without a sample count");
    }

    /// What fails in a device's memory, the other ranks cannot know of: ends the job.
    template <class Action>
    void guarded(Action&& action) {
        break_job_unless_agreed(group_->channel().job(), std::forward<Action>(action));
    }

    /// Whether a gradient goes into its bucket, and no zeros. One that waits for its mark takes no part.
    [[nodiscard]] bool takes_part(std::size_t i) {
        if (is_marked() && marks_[i] == State::waiting) {
            if (!options_.find_unused_parameters)
                note_problem(detail::text("gradient ", parameters_[i].name,
                                          " was neither marked ready nor unused before synchronize()"));
            marks_.mark(i, State::unused, buckets_);
        }
        return marks_[i] != State::unused && addresses_are_good_ && !is_shadow_;
    }

    /// Copies a bucket's gradients in, weighted.
    void fill(std::size_t b) {
        const trace::Span span("copy in");
        const std::vector<std::size_t>& indices = buckets_[b].indices();
        for (std::size_t position = 0; position < indices.size(); ++position) {
            const std::size_t i = indices[position];
            const double weight = takes_part(i) ? copy_weight() : 0;
            const Buffer place = buckets_[b].gradient(position, parameters_[i].count);
            if (accumulator_.has_any()) {
                accumulator_.blend(place, i, header_.sample_weight(), parameters_[i].gradient, weight);
            } else {
                detail::copy_scaled(place, parameters_[i].gradient, weight);
            }
        }
    }

    void launch_on_device() {
        const trace::Span span("copy in");
        const std::size_t b = traffic_->skip();
        const std::vector<std::size_t>& indices = buckets_[b].indices();
        detail::DeviceSteps::Load load;
        load.has_sums = accumulator_.has_any();
        for (std::size_t position = 0; position < indices.size(); ++position) {
            const std::size_t i = indices[position];
            load.gradients.push_back({.parameter = i,
                                      .place = buckets_[b].gradient(position, parameters_[i].count),
                                      .elements = parameters_[i].gradient,
                                      .takes_part = takes_part(i)});
        }
        load.weight.is_share = samples_.has_value();
        load.weight.factor = samples_ ? static_cast<double>(*samples_) : 1.0 / ranks_that_count();
        if (b + 1 == buckets_.size()) load.status = !problem_.empty();
        on_device_->launch(*group_, buckets_[b], b, load);
    }

    void empty_on_device(std::size_t b) {
        const trace::Span span("copy out");
        const bool has_place = addresses_are_good_ && !is_shadow_;
        std::vector<detail::LaneCopy> averages;
        const std::vector<std::size_t>& indices = buckets_[b].indices();
        for (std::size_t position = 0; position < indices.size(); ++position) {
            const ParameterRef& parameter = parameters_[indices[position]];
            if (!has_place || unused_[indices[position]]) continue;
            const Buffer average = buckets_[b].gradient(position, parameter.count);
            averages.push_back({average.at(parameter.gradient), average.data});
        }
        on_device_->copy_out(buckets_[b], b, averages);
    }

    void fill_and_launch() {
        if (on_device_) return guarded([&] { launch_on_device(); });
        const bool sums = samples_ || round_.averages_over_present;
        reduction_ = sums ? ReduceOp::sum : ReduceOp::avg;
        guarded([&] { fill(traffic_->next()); });
        traffic_->launch(buckets_, parameters_.refs(),
                         {.op = reduction_,
                          .weight = rank_weight(),
                          .step = clock_->statistics().steps,
                          .has_problem = !problem_.empty(),
                          .may_block = !overlaps() || (buckets_.size() == 1 && !is_marked())});
    }

    /// Where no bucket carries the ranks' status.
    [[nodiscard]] bool any_problem() {
        return group_->all_reduce_value(static_cast<std::uint8_t>(problem_.empty() ? 0 : 1), ReduceOp::max) !=
               0;
    }

    /// Of this rank's gradients, of those that were accumulated as well.
    [[nodiscard]] double rank_weight() const {
        if (!samples_) return is_shadow_ ? 0 : 1.0 / ranks_that_count();
        return header_.weight() + static_cast<double>(accumulator_.samples()) * header_.sample_weight();
    }

    /// Of this step's own gradients, as they are copied in. Without a hook and sample counts the reduction
    /// itself averages.
    [[nodiscard]] double copy_weight() const {
        const bool weighs_ranks = traffic_->has_hook() || round_.averages_over_present;
        return weighs_ranks && !samples_ ? 1.0 / ranks_that_count() : header_.weight();
    }

    [[nodiscard]] int ranks_that_count() const {
        return round_.averages_over_present ? round_.present : group_->size();
    }

    /// Copies a bucket's averages out.
    void empty(std::size_t b) {
        if (!addresses_are_good_ || is_shadow_ || outcome_ != Outcome::everywhere) return;
        const trace::Span span("copy out");
        const std::vector<std::size_t>& indices = buckets_[b].indices();
        for (std::size_t position = 0; position < indices.size(); ++position) {
            const ParameterRef& parameter = parameters_[indices[position]];
            if (unused_[indices[position]]) continue;
            const Buffer average = buckets_[b].gradient(position, parameter.count);
            detail::copy_gradient(average.at(parameter.gradient), average.data);
        }
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
        const std::string problems = detail::gather_problems(*group_, problem_);
        accumulator_.clear();
        if (on_device_) guarded([&] { on_device_->forget_sums(); });
        unused_.forget();
        reset_step();
        detail::throw_agreed(*group_, ArgumentError("synchronize: " + problems));
    }

    void reset_step() {
        begun_ = false;
        addresses_are_good_ = true;
        header_.reset();
        buffers_are_sent_ = false;
        is_shadow_ = false;
        samples_.reset();
        problem_.clear();
        traffic_->reset(buckets_.size());
        marks_.reset(parameters_.size(), buckets_);
    }

    [[nodiscard]] bool may_communicate_here() const {
        return own_group_ != nullptr && group_->channel().callable_from_this_thread();
    }

    /// Whether what goes on in the background leaves backward its processor. The same on all ranks.
    [[nodiscard]] bool overlaps() const {
        return !group_->channel().competes_with_compute() || !buckets_.devices().empty();
    }

    /// Whether header and buckets leave before synchronize().
    [[nodiscard]] bool leaves_early() const { return may_communicate_here() && overlaps(); }

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
    std::unique_ptr<detail::DeviceSteps> on_device_;  // where all gradients are there
    OwnStep last_step_;                               // that they have judged
    bool pinned_ = false;                             // somebody knows the memory of a bucket
    bool rebuilt_ = false;

    std::mutex mutex_;
    int local_scopes_ = 0;
    bool begun_ = false;
    bool is_shadow_ = false;
    JoinRound round_;
    bool addresses_are_good_ = true;
    bool buffers_are_sent_ = false;
    detail::StepHeader header_;
    std::optional<std::size_t> samples_;
    detail::GradientAccumulator accumulator_;
    std::string problem_;
    ReduceOp reduction_ = ReduceOp::avg;
    detail::GradientMarks marks_;
    detail::UnusedParameters unused_;
    std::optional<detail::StepClock> clock_;
    std::optional<detail::BucketTraffic> traffic_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace dptk
