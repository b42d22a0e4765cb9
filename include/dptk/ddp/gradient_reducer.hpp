/// Averages gradients over ranks, bucket by bucket, while backward goes on where the gradients are marked. It
/// knows nothing of layers, values or optimizers: DistributedDataParallel adds what a training loop needs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/ddp/gradient_bucket.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/ddp/parameter_source.hpp"

namespace dptk {

/// One step: begin_step, then backward (which marks, under Ready::marked), then synchronize.
///
/// A gradient is the mean over the rank's own samples. With sample counts (begin_step(n) or synchronize(n),
/// on all ranks) the result is the mean over all ranks' samples: each gradient is weighted by n / (sum of n).
/// Without, it is the mean over ranks. A rank with n = 0 contributes zeros, whatever its memory holds, and
/// need not mark.
///
/// Buckets leave in the reverse of the registration order, on a duplicate of the group, so that the program's
/// own calls never meet them. Over a transport that has no duplicate they travel inside synchronize().
class GradientReducer {
  public:
    /// Compares parameters and options on all ranks: collective. Throws on all ranks alike: MismatchError
    /// where they differ, ArgumentError where a rank's parameters are unusable. The group must outlive the
    /// reducer.
    GradientReducer(ProcessGroup& group, ParameterSource source, DistributedDataParallelOptions options = {})
        : source_(std::move(source)), ready_(options.ready) {
        if (std::unique_ptr<Channel> own = group.channel().duplicate()) {
            own_group_ = std::make_unique<ProcessGroup>(std::move(own));
        }
        group_ = own_group_ ? own_group_.get() : &group;

        std::string problem;
        try {
            parameters_ = source_.collect();
            check_caps(options);
        } catch (const std::exception& error) {  // also of the program's own for_each_parameter
            problem = error.what();
        }
        detail::check_no_problem<ArgumentError>(*group_, problem);
        detail::check_equal_tables(*group_, "models", table(options));
        make_buckets(options);
        states_.resize(parameters_.size());
        reset_step();
    }

    GradientReducer(const GradientReducer&) = delete;
    GradientReducer& operator=(const GradientReducer&) = delete;

    /// The parameters in registration order, with the addresses of the last step.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept { return parameters_; }

    /// The group that carries the buckets. Between steps it may serve other collectives of the same training.
    [[nodiscard]] ProcessGroup& group() noexcept { return *group_; }

    /// Where gradient `i` lies in its bucket. Whoever computes gradients straight into this memory saves the
    /// copies in and out. Aligned to 64 bytes.
    [[nodiscard]] Buffer gradient_memory(std::size_t i) const {
        check_index(i);
        const auto [bucket, position] = places_[i];
        return buckets_[bucket].gradient(position, parameters_[i].count);
    }

    /// Begins a step on all ranks: collective, does not wait for the others. Under Ready::marked, gradients
    /// stay where they are from here, or from the first mark, until synchronize() returns; otherwise their
    /// addresses are read in synchronize(). Optional without a sample count: the first mark or synchronize()
    /// begins a step by itself.
    void begin_step() { begin(std::nullopt); }

    /// Begins a step in which this rank has `sample_count` samples. All ranks give a count, or none does.
    void begin_step(std::size_t sample_count) { begin(sample_count); }

    /// Under Ready::marked: gradient `i` is complete. From any thread. A bucket whose gradients are all
    /// complete leaves at once, except for the last, which leaves in synchronize(). Never throws for a
    /// mistake of marking: synchronize() does, on all ranks.
    void mark_ready(std::size_t i) { mark(i, State::ready); }

    /// Under Ready::marked: parameter `i` takes no part in this step on this rank, which contributes zeros.
    void mark_unused(std::size_t i) { mark(i, State::unused); }

    /// Ends the step: on return the gradients are the average. Collective, blocks.
    ///
    /// Throws on all ranks alike, ArgumentError: a gradient that was not marked, or twice; a parameter whose
    /// size has changed; a sample count given by some ranks only. The gradients are then unspecified, and the
    /// next step may begin.
    void synchronize() {
        const std::lock_guard lock(mutex_);
        if (!begun_) begin_locked(std::nullopt);
        end_step();
    }

    /// begin_step(sample_count) and synchronize() in one.
    void synchronize(std::size_t sample_count) {
        const std::lock_guard lock(mutex_);
        check_not_begun();
        begin_locked(sample_count);
        end_step();
    }

  private:
    /// What is known of a gradient in this step.
    enum class State : std::uint8_t { waiting, ready, unused, copied };

    /// Reduced once a step, before the buckets: sums over ranks.
    struct Header {
        double samples = 0;
        double announcing = 0;  // ranks that gave a count
        double problems = 0;    // ranks that have one
    };

    struct Place {
        std::size_t bucket = 0;
        std::size_t position = 0;
    };

    // ---- construction

    static void check_caps(const DistributedDataParallelOptions& options) {
        for (const std::optional<double>& cap : {options.bucket_cap_mb, options.first_bucket_mb}) {
            if (cap && !(*cap > 0 && std::isfinite(*cap))) {
                throw ArgumentError(detail::text("a bucket cap of ", *cap, " MiB; it must be positive"));
            }
        }
    }

    /// What must be equal on all ranks, a line each.
    [[nodiscard]] std::string table(const DistributedDataParallelOptions& options) const {
        const auto cap_text = [](const std::optional<double>& cap) {
            return cap ? detail::text(*cap, " MiB") : std::string("default");
        };
        std::string out = detail::text(
            "Ready::", options.ready == Ready::marked ? "marked" : "at_synchronize", "\nbucket_cap_mb ",
            cap_text(options.bucket_cap_mb), "\nfirst_bucket_mb ", cap_text(options.first_bucket_mb), "\n");
        for (const ParameterRef& parameter : parameters_) {
            out += detail::text("parameter ", parameter.name, " of ", dtype_name(parameter.dtype), " ",
                                detail::shape_text(parameter.shape));
            out += detail::text(" with ", parameter.count, " elements");
            if (parameter.layout != 0) out += detail::text(" in layout ", parameter.layout);
            out += '\n';
        }
        return out;
    }

    void make_buckets(const DistributedDataParallelOptions& options) {
        constexpr double mib = 1024.0 * 1024.0;
        const double cap = options.bucket_cap_mb.value_or(25);
        const double first = options.first_bucket_mb.value_or(options.bucket_cap_mb ? cap : 1);
        const auto bytes = [](double size) { return static_cast<std::size_t>(std::min(size * mib, 1e18)); };
        const std::size_t caps[] = {bytes(first), bytes(cap)};

        std::vector<PlannedParameter> launch_order;
        for (std::size_t i = parameters_.size(); i-- > 0;) {
            launch_order.push_back({parameters_[i].count, parameters_[i].dtype, parameters_[i].device});
        }
        BucketPlan plan = plan_buckets(launch_order, caps);
        places_.resize(parameters_.size());
        for (std::size_t b = 0; b < plan.size(); ++b) {
            for (std::size_t position = 0; position < plan[b].parameters.size(); ++position) {
                std::size_t& index = plan[b].parameters[position];
                index = parameters_.size() - 1 - index;
                places_[index] = {b, position};
            }
            using Status = detail::GradientBucket::Status;
            buckets_.emplace_back(*group_, plan[b], parameters_,
                                  b + 1 == plan.size() ? Status::last_element : Status::none);
        }
        in_flight_.resize(buckets_.size());
        missing_.resize(buckets_.size());
    }

    // ---- a step; all below with mutex_ held

    void begin(std::optional<std::size_t> sample_count) {
        const std::lock_guard lock(mutex_);
        check_not_begun();
        begin_locked(sample_count);
        if (may_communicate_here()) start_header();
    }

    void check_not_begun() const {
        if (!begun_) return;
        throw ArgumentError(detail::text("rank ", group_->rank(),
                                         ": a step begins in the middle of another; synchronize(), without a "
                                         "sample count, ends the one that begin_step or a mark has begun"));
    }

    void begin_locked(std::optional<std::size_t> sample_count) {
        begun_ = true;
        samples_ = sample_count;
        if (ready_ == Ready::at_synchronize) return;
        read_addresses();
        if (samples_ == std::size_t{0}) {
            for (std::size_t i = 0; i < states_.size(); ++i) note_mark(i, State::unused);
        }
    }

    void read_addresses() {
        try {
            std::vector<ParameterRef> now = source_.collect();
            check_unchanged(now);
            parameters_ = std::move(now);
        } catch (const std::exception& error) {  // also of the program's own for_each_parameter
            note_problem(error.what());
            addresses_are_good_ = false;
        }
    }

    void check_unchanged(const std::vector<ParameterRef>& now) const {
        if (now.size() != parameters_.size()) {
            throw ArgumentError(detail::text("there were ", parameters_.size(),
                                             " parameters at construction, and are ", now.size(), " now"));
        }
        for (std::size_t i = 0; i < now.size(); ++i) {
            if (now[i].count != parameters_[i].count || now[i].dtype != parameters_[i].dtype) {
                throw ArgumentError(
                    detail::text("parameter ", parameters_[i].name, " was ", parameters_[i].count, " x ",
                                 dtype_name(parameters_[i].dtype), " at construction, and is ", now[i].count,
                                 " x ", dtype_name(now[i].dtype), " now"));
            }
        }
    }

    [[nodiscard]] Collective header_call() {
        *header_ = {static_cast<double>(samples_.value_or(0)), samples_ ? 1.0 : 0.0,
                    problem_.empty() ? 0.0 : 1.0};
        const Buffer buffer{header_.get(), sizeof(Header) / sizeof(double), DType::f64, {}};
        return {.verb = Verb::all_reduce, .input = buffer, .output = buffer};
    }

    void start_header() {
        header_work_ = group_->channel().start(header_call(), header_);
        header_started_ = true;
    }

    /// Waits until the header is reduced; from then on the weight of this rank's gradients is known.
    void ensure_header() {
        if (!header_started_) group_->channel().run(header_call());
        header_started_ = true;
        header_work_.wait();
        if (samples_) weight_ = header_->samples == 0 ? 0 : static_cast<double>(*samples_) / header_->samples;
    }

    [[nodiscard]] bool header_is_good() {
        const bool some_announced = header_->announcing != 0 && header_->announcing != group_->size();
        if (some_announced && problem_.empty()) {
            note_problem(samples_ ? detail::text("begins the step with a sample count of ", *samples_)
                                  : std::string("begins the step without a sample count"));
        }
        return header_->problems == 0 && !some_announced;
    }

    void mark(std::size_t i, State state) {
        check_index(i);
        const std::lock_guard lock(mutex_);
        if (!begun_) begin_locked(std::nullopt);
        // Started early, the header has arrived when the first bucket is full.
        if (ready_ == Ready::marked && !header_started_ && may_communicate_here()) start_header();
        if (samples_ == std::size_t{0}) return;
        note_mark(i, state);
        if (!may_communicate_here()) return;
        // The last bucket stays for synchronize(): it carries the status, and a mistake may still come.
        while (next_bucket_ + 1 < buckets_.size() && missing_[next_bucket_] == 0) {
            ensure_header();
            if (!header_is_good()) return;
            fill(next_bucket_);
            launch(next_bucket_);
        }
    }

    void note_mark(std::size_t i, State state) {
        if (ready_ != Ready::marked)
            return note_problem("a gradient is marked, but the option is Ready::at_synchronize");
        if (states_[i] != State::waiting) {
            return note_problem(detail::text("gradient ", parameters_[i].name, " was marked twice"));
        }
        states_[i] = state;
        --missing_[places_[i].bucket];
    }

    void note_problem(std::string problem) {
        if (problem_.empty()) problem_ = std::move(problem);
    }

    void end_step() {
        if (ready_ == Ready::at_synchronize) read_addresses();
        ensure_header();
        if (!header_is_good()) throw_problems();
        while (next_bucket_ < buckets_.size()) {
            fill(next_bucket_);
            launch(next_bucket_);
        }
        bool failed = false;
        for (std::size_t i = 0; i < buckets_.size(); ++i) {
            in_flight_[i].wait();
            empty(i);
            failed = failed || (i + 1 == buckets_.size() && buckets_[i].status());
        }
        if (failed) throw_problems();
        reset_step();
    }

    /// Copies a bucket's gradients in, weighted.
    void fill(std::size_t b) {
        const std::vector<std::size_t>& indices = buckets_[b].indices();
        for (std::size_t position = 0; position < indices.size(); ++position) {
            const std::size_t i = indices[position];
            if (ready_ == Ready::marked && states_[i] == State::waiting) {
                note_problem(detail::text("gradient ", parameters_[i].name,
                                          " was neither marked ready nor unused before synchronize()"));
            }
            const bool counts = states_[i] != State::unused && addresses_are_good_;
            detail::copy_scaled(buckets_[b].gradient(position, parameters_[i].count), parameters_[i].gradient,
                                counts ? weight_ : 0);
            states_[i] = State::copied;
        }
    }

    void launch(std::size_t b) {
        const bool last = b + 1 == buckets_.size();
        if (last) buckets_[b].set_status(!problem_.empty());
        const Collective call = buckets_[b].all_reduce(samples_ ? ReduceOp::sum : ReduceOp::avg);
        const bool alone = buckets_.size() == 1 && ready_ == Ready::at_synchronize;
        if (own_group_ && !alone) {
            in_flight_[b] = group_->channel().start(call, buckets_[b].memory());
        } else {
            group_->channel().run(call);
        }
        ++next_bucket_;
    }

    /// Copies a bucket's averages out.
    void empty(std::size_t b) {
        if (!addresses_are_good_) return;
        const std::vector<std::size_t>& indices = buckets_[b].indices();
        for (std::size_t position = 0; position < indices.size(); ++position) {
            const ParameterRef& parameter = parameters_[indices[position]];
            const Buffer average = buckets_[b].gradient(position, parameter.count);
            if (average.bytes() != 0 && parameter.gradient != average.data) {
                std::memcpy(parameter.gradient, average.data, average.bytes());
            }
        }
    }

    [[noreturn]] void throw_problems() {
        const std::string problems = detail::gather_problems(*group_, problem_);
        reset_step();
        detail::throw_agreed(*group_, ArgumentError("synchronize: " + problems));
    }

    void reset_step() {
        begun_ = false;
        addresses_are_good_ = true;
        header_started_ = false;
        header_work_ = Work();
        samples_.reset();
        weight_ = 1;
        problem_.clear();
        next_bucket_ = 0;
        for (Work& work : in_flight_) work = Work();
        for (State& state : states_) state = State::waiting;
        for (std::size_t b = 0; b < buckets_.size(); ++b) missing_[b] = buckets_[b].indices().size();
    }

    [[nodiscard]] bool may_communicate_here() const {
        return own_group_ != nullptr && group_->channel().callable_from_this_thread();
    }

    void check_index(std::size_t i) const {
        if (i >= parameters_.size()) {
            throw ArgumentError(detail::text("rank ", group_->rank(), ": there is no parameter ", i,
                                             " among ", parameters_.size()));
        }
    }

    ParameterSource source_;
    Ready ready_;
    std::unique_ptr<ProcessGroup> own_group_;
    ProcessGroup* group_ = nullptr;
    std::vector<ParameterRef> parameters_;
    std::vector<Place> places_;
    std::vector<detail::GradientBucket> buckets_;

    std::mutex mutex_;
    bool begun_ = false;
    bool addresses_are_good_ = true;
    bool header_started_ = false;
    std::shared_ptr<Header> header_ = std::make_shared<Header>();
    Work header_work_;
    std::optional<std::size_t> samples_;
    double weight_ = 1;
    std::string problem_;
    std::vector<State> states_;
    std::vector<std::size_t> missing_;  // gradients not yet marked, by bucket
    std::size_t next_bucket_ = 0;
    std::vector<Work> in_flight_;
};

}  // namespace dptk
