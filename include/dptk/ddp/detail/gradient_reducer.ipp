#pragma once

#include "dptk/ddp/detail/gradient_reducer.hpp"

#include <exception>
#include <string>
#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/ddp/detail/bucket_order.hpp"
#include "dptk/ddp/detail/device_steps.hpp"
#include "dptk/ddp/detail/host_steps.hpp"
#include "dptk/ddp/detail/model_table.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE GradientReducer::GradientReducer(ProcessGroup& group, ParameterSource source,
                                             DistributedDataParallelOptions options, Outcome outcome)
    : parameters_(std::move(source)), options_(std::move(options)), outcome_(outcome), unused_(options_) {
    if (std::unique_ptr<Channel> own = group.channel().duplicate()) {
        own_group_ = std::make_unique<ProcessGroup>(std::move(own));
    }
    group_ = own_group_ ? own_group_.get() : &group;

    std::string problem;
    std::string device_problem;
    DeviceLanes lanes;
    try {
        parameters_.find(options_);
        buffers_ = ModelBuffers(options_);
        check_options();
        lanes = make_lanes();
    } catch (const BackendError& error) {
        device_problem = error.what();
    } catch (const std::exception& error) {  // may come from the program's own for_each_parameter
        problem = error.what();
    }
    check_no_problem<ArgumentError>(*group_, problem);
    check_no_problem<BackendError>(*group_, device_problem);
    check_equal_tables(*group_, "models",
                       model_table(options_, parameters_.refs(), parameters_.ignored(), buffers_.buffers()) +
                           (lanes.empty() ? "" : "steps in dptk's CUDA kernels\n"));
    make_steps(std::move(lanes));
    make_buckets(first_launch_order(parameters_.ignored()));
    clock_.emplace(*group_);
    clock_->statistics().first_bucket_bytes = buckets_.gradient_bytes(parameters_.refs());
}

DPTK_INLINE void GradientReducer::broadcast_values(int root) {
    buffers_.broadcast(*group_, root, options_.stream);
    parameters_.broadcast_values(*group_, root, options_.stream);
}

DPTK_INLINE Buffer GradientReducer::gradient_memory(std::size_t i) {
    const std::lock_guard lock(mutex_);
    check_in_bucket(i);
    pinned_ = true;
    return buckets_.gradient(i, parameters_[i].count);
}

DPTK_INLINE std::shared_ptr<void> GradientReducer::bucket_memory(std::size_t i) const {
    check_in_bucket(i);
    return buckets_[buckets_.place(i).bucket].memory();
}

DPTK_INLINE void GradientReducer::check() {
    const std::lock_guard lock(mutex_);
    check_not_begun();
    if (!steps_->status_ok(own_)) throw_problems();
}

DPTK_INLINE void GradientReducer::check_in_bucket(std::size_t i) const {
    check_index(i);
    if (!buckets_.has(i))
        throw ArgumentError(
            text("parameter ", parameters_[i].name, " has no bucket: it is in options.parameters_to_ignore"));
}

DPTK_INLINE std::size_t GradientReducer::steps() noexcept {
    return clock_->statistics().steps;
}

DPTK_INLINE DdpStatistics GradientReducer::statistics() {
    const std::lock_guard lock(mutex_);
    DdpStatistics now = clock_->statistics();
    now.bucket_bytes = buckets_.gradient_bytes(parameters_.refs());
    return now;
}

DPTK_INLINE void GradientReducer::set_comm_hook(std::shared_ptr<CommHook> hook) {
    const std::lock_guard lock(mutex_);
    check_not_begun();
    check_equal_tables(*group_, "hooks", hook ? hook->description() : std::string("none"));
    steps_->set_hook(std::move(hook));
}

DPTK_INLINE void GradientReducer::begin_step() {
    begin(std::nullopt);
}

DPTK_INLINE void GradientReducer::synchronize() {
    const std::lock_guard lock(mutex_);
    if (local_scopes_ > 0) return;
    if (!begun_) begin_locked(std::nullopt);
    end_step();
}

DPTK_INLINE void GradientReducer::synchronize(std::size_t sample_count) {
    const std::lock_guard lock(mutex_);
    check_counts_allowed();
    check_not_begun();
    begin_locked(sample_count);
    end_step();
}

DPTK_INLINE void GradientReducer::shadow() {
    const std::lock_guard lock(mutex_);
    check_not_begun();
    own_.is_shadow = true;
    begin_locked(0);
    end_step();
}

DPTK_INLINE void GradientReducer::set_joined(const JoinRound& round) {
    const std::lock_guard lock(mutex_);
    check_not_begun();
    steps_->set_joined(round);
}

DPTK_INLINE void GradientReducer::accumulate(std::size_t sample_count) {
    const std::lock_guard lock(mutex_);
    if (begun_) return own_.note("accumulate() was called during a step: call it between steps");
    read_addresses(LazyGradients::found);
    if (!own_.has_addresses || !own_.problem.empty()) return;
    if (!steps_->lanes() && !buckets_.devices().empty())
        return own_.note(
            "accumulate() requires all gradients in host memory, or all in device memory with dptk's CUDA "
            "kernels");
    steps_->accumulate(sample_count);
}

DPTK_INLINE GradientPostprocessing& GradientReducer::averages() {
    const std::lock_guard lock(mutex_);
    check_not_begun();
    return *postprocessing_;
}

DPTK_INLINE void GradientReducer::enter_local_scope() {
    const std::lock_guard lock(mutex_);
    check_not_begun();
    ++local_scopes_;
}

DPTK_INLINE void GradientReducer::leave_local_scope() noexcept {
    const std::lock_guard lock(mutex_);
    --local_scopes_;
}

DPTK_INLINE void GradientReducer::check_options() const {
    BucketSet::check_caps(options_);
    if (options_.find_unused_parameters && options_.ready != Ready::marked)
        throw ArgumentError(
            "find_unused_parameters needs Ready::marked: only marks show which parameters take part in a "
            "step");
    if (options_.find_unused_parameters && outcome_ != Outcome::everywhere)
        throw ArgumentError("find_unused_parameters does not support sharded gradients");
    if (outcome_ != Outcome::everywhere) {
        require_host_memory(parameters_.refs(), "a sharded optimizer");
        require_lasting_gradients(parameters_.refs(), "a sharded optimizer");
    }
    if (!is_marked()) require_lasting_gradients(parameters_.refs(), "Ready::at_synchronize");
}

DPTK_INLINE DeviceLanes GradientReducer::make_lanes() const {
    DeviceLanes lanes;
    const bool has_host_buffers = buffers_.has_any() && !buffers_.are_on_devices();
    if (outcome_ == Outcome::everywhere && !has_host_buffers)
        lanes =
            DeviceLanes::make(parameters_.refs(), first_launch_order(parameters_.ignored()), options_.stream);
    if (options_.stream != StreamRef() && lanes.empty())
        throw ArgumentError(
            "options.stream requires all gradients and buffers in device memory, and dptk's CUDA kernels");
    for (const Buffer& buffer : buffers_.buffers()) {
        if (buffer.on_device() && !lanes.has(buffer.device))
            throw ArgumentError(
                text("a buffer is on ", device_name(buffer.device),
                     ": buffers in device memory require all gradients in device memory, some of them on the "
                     "same device, and dptk's CUDA kernels"));
    }
    return lanes;
}

DPTK_INLINE void GradientReducer::make_steps(DeviceLanes lanes) {
    const bool is_own = own_group_ != nullptr;
    if (lanes.empty()) {
        steps_ = std::make_unique<HostSteps>(*group_, parameters_, buckets_, outcome_, is_own, is_marked());
    } else {
        steps_ = std::make_unique<DeviceSteps>(*group_, parameters_, buckets_, std::move(lanes), is_own);
    }
    postprocessing_.emplace(*group_, parameters_, buckets_, *steps_);
}

DPTK_INLINE void GradientReducer::make_buckets(const std::vector<std::size_t>& order) {
    const bool on_device = steps_->lanes() != nullptr;
    steps_->on_buckets_rebuilt();
    buckets_ = BucketSet(*group_, parameters_.refs(), order, options_, outcome_, on_device);
    reset_step();
}

DPTK_INLINE void GradientReducer::begin(std::optional<std::size_t> sample_count) {
    const std::lock_guard lock(mutex_);
    if (sample_count) check_counts_allowed();
    if (local_scopes_ > 0) return;
    check_not_begun();
    begin_locked(sample_count);
    if (sends_early()) begin_among_ranks();
    if (buffers_.has_any() && may_communicate_here()) static_cast<void>(may_proceed());
}

DPTK_INLINE void GradientReducer::check_counts_allowed() const {
    if (local_scopes_ == 0) return;
    throw ArgumentError(text("rank ", group_->rank(),
                             ": a sample count was given inside no_sync, which gives all micro-batches the "
                             "same weight: use accumulate(n) to weight them by their samples"));
}

DPTK_INLINE void GradientReducer::check_not_begun() const {
    if (!begun_) return;
    throw ArgumentError(text("rank ", group_->rank(),
                             ": this call is not allowed during a step: first end the step with "
                             "synchronize(), without a sample count"));
}

DPTK_INLINE void GradientReducer::begin_locked(std::optional<std::size_t> sample_count) {
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

DPTK_INLINE void GradientReducer::read_buffers() {
    try {
        buffers_.read();
    } catch (const std::exception& error) {  // may come from the program's own ranges
        own_.note(error.what());
        own_.has_buffers = false;
    }
}

DPTK_INLINE void GradientReducer::read_addresses(LazyGradients lazy) {
    try {
        parameters_.read_addresses();
        for (std::size_t i = 0; lazy == LazyGradients::found && i < parameters_.size(); ++i)
            if (buckets_.has(i)) parameters_.find_gradient(i, IfMissing::null);
        if (options_.gradient_as_bucket_view) buckets_.check_views(parameters_.refs());
    } catch (const std::exception& error) {  // may come from the program's own for_each_parameter
        own_.note(error.what());
        own_.has_addresses = false;
    }
}

DPTK_INLINE void GradientReducer::begin_among_ranks() {
    if (steps_->is_captured()) check_capturable();
    steps_->begin(own_);
}

DPTK_INLINE bool GradientReducer::may_proceed() {
    if (!steps_->has_begun() && steps_->is_captured()) check_capturable();
    if (!steps_->may_proceed(own_)) return false;
    if (buffers_.has_any() && !std::exchange(buffers_are_sent_, true))
        steps_->send(buffers_, steps_->joined().first, own_);
    return true;
}

DPTK_INLINE void GradientReducer::check_capturable() {
    try {
        const bool settled = rebuilt_ || !is_marked() || options_.gradient_as_bucket_view;
        if (!settled || options_.find_unused_parameters)
            throw ArgumentError(text("rank ", group_->rank(),
                                     ": cannot capture a step into a CUDA graph: first run two steps, which "
                                     "makes the buckets final, and do not set find_unused_parameters"));
        steps_->check_capturable();
    } catch (...) {
        reset_step();
        throw;
    }
}

DPTK_INLINE void GradientReducer::mark(std::size_t i, State state, void* gradient) {
    check_index(i);
    const std::lock_guard lock(mutex_);
    if (local_scopes_ > 0 || !buckets_.has(i)) return;
    if (!begun_) {
        if (steps_->has_accumulated())
            own_.note(text("gradient ", parameters_[i].name,
                           " was marked after accumulate() without begin_step(n): call begin_step(n) first"));
        begin_locked(std::nullopt);
    }
    // Starting the exchange here lets it finish before the first bucket is full.
    if (is_marked() && !steps_->has_begun() && sends_early()) begin_among_ranks();
    if (own_.samples == std::size_t{0}) return;
    note_mark(i, state);
    if (state == State::ready && is_marked()) set_lazy_gradient(i, gradient);
    if (!sends_early()) return;
    // The last bucket is left to synchronize(): it carries the status, and later marks may still be
    // mistakes.
    while (steps_->next() + 1 < buckets_.size() && marks_.is_complete(steps_->next())) {
        if (!may_proceed()) return;
        launch();
    }
}

DPTK_INLINE void GradientReducer::note_mark(std::size_t i, State state) {
    if (!is_marked()) return own_.note("a gradient was marked, but options.ready is Ready::at_synchronize");
    if (!marks_.mark(i, state, buckets_))
        own_.note(text("gradient ", parameters_[i].name, " was marked twice"));
    if (state == State::ready && unused_.is_permanently_unused(i))
        own_.note(text("static_graph: gradient ", parameters_[i].name,
                       " was marked ready, but no rank used its parameter in the first step"));
}

DPTK_INLINE void GradientReducer::set_lazy_gradient(std::size_t i, void* gradient) {
    const ParameterRef& parameter = parameters_[i];
    const bool is_lazy = static_cast<bool>(parameter.lazy_gradient);
    if (parameter.count == 0 || (!is_lazy && gradient == nullptr)) return;
    if (!is_lazy)
        return own_.note(text("gradient ", parameter.name,
                              " was marked with an address: mark_ready(i, address) is only for parameters "
                              "with lazy gradients"));
    if (gradient == nullptr)
        return own_.note(text("the lazy gradient ", parameter.name,
                              " was marked without its address: call mark_ready(i, address)"));
    parameters_.set_gradient(i, gradient);
    if (options_.gradient_as_bucket_view && !buckets_.is_view(i, parameter))
        own_.note(buckets_.view_problem(i, parameter));
}

DPTK_INLINE void GradientReducer::find_gradients() {
    if (!own_.has_addresses || own_.is_shadow) return;
    break_job_unless_agreed(group_->channel().job(), [&] {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (buckets_.has(i) && !unused_[i]) parameters_.find_gradient(i, IfMissing::make);
        }
    });
}

DPTK_INLINE void GradientReducer::end_step() {
    clock_->end_compute();
    const trace::Span span("synchronize");
    if (!is_marked()) read_addresses();
    if (!may_proceed()) throw_problems();
    while (steps_->next() < buckets_.size()) launch();
    // This call must follow all buckets: some buckets are sent before all marks are known, and the number
    // of such buckets differs between ranks.
    unused_.exchange(
        *group_, parameters_.size(),
        steps_->has_accumulated() ? first_launch_order(parameters_.ignored()) : marks_.arrived());
    find_gradients();
    reduction_ = steps_->reduction(own_);
    if (!steps_->finish(own_, unused_, *clock_)) throw_problems();
    clock_->end_step(marks_.arrived());
    rebuild();
    reset_step();
}

DPTK_INLINE void GradientReducer::launch() {
    takes_part_.clear();
    for (const std::size_t i : buckets_[steps_->next()].indices()) takes_part_.push_back(takes_part(i));
    steps_->launch(own_, takes_part_);
}

DPTK_INLINE bool GradientReducer::takes_part(std::size_t i) {
    if (is_marked() && marks_[i] == State::waiting) {
        if (!options_.find_unused_parameters)
            own_.note(text("gradient ", parameters_[i].name,
                           " was neither marked ready nor unused before synchronize()"));
        marks_.mark(i, State::unused, buckets_);
    }
    const bool has_memory = parameters_[i].gradient != nullptr || parameters_[i].count == 0;
    return marks_[i] != State::unused && has_memory && own_.has_addresses && !own_.is_shadow;
}

DPTK_INLINE void GradientReducer::rebuild() {
    const bool may_change = options_.find_unused_parameters && !options_.static_graph;
    const bool must_stay = options_.gradient_as_bucket_view || outcome_ != Outcome::everywhere;
    if (rebuilt_ || !is_marked() || may_change || must_stay) return;
    const NewOrder agreed =
        agree_on_order(*group_, pinned_, marks_.arrived(), first_launch_order(parameters_.ignored()));
    rebuilt_ = agreed.is_settled;
    if (!agreed.order.empty()) make_buckets(agreed.order);
}

DPTK_INLINE void GradientReducer::throw_problems() {
    const std::string problems = gather_problems(*group_, own_.problem);
    steps_->discard_sums();
    unused_.discard();
    reset_step();
    throw_agreed(*group_, ArgumentError("synchronize: " + problems));
}

DPTK_INLINE void GradientReducer::reset_step() {
    begun_ = false;
    buffers_are_sent_ = false;
    own_ = {};
    steps_->reset();
    marks_.reset(parameters_.size(), buckets_);
}

DPTK_INLINE bool GradientReducer::may_communicate_here() const {
    return own_group_ != nullptr && group_->channel().callable_from_this_thread();
}

DPTK_INLINE bool GradientReducer::sends_early() const {
    return may_communicate_here() && steps_->overlaps();
}

DPTK_INLINE void GradientReducer::check_index(std::size_t i) const {
    if (i >= parameters_.size()) {
        throw ArgumentError(text("rank ", group_->rank(), ": invalid parameter index ", i, ": the model has ",
                                 parameters_.size(), " parameters"));
    }
}

}  // namespace DPTK_NAMESPACE::detail
