#pragma once

#include "dptk/ddp/detail/gradient_reducer.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/comm/self.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/ddp/detail/bucket_order.hpp"
#include "dptk/ddp/detail/device_steps.hpp"
#include "dptk/ddp/detail/host_steps.hpp"
#include "dptk/ddp/detail/model_table.hpp"
#include "dptk/ddp/detail/value_hash.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE GradientReducer::GradientReducer(ProcessGroup& group, ParameterSource source,
                                             DistributedDataParallelOptions options, Outcome outcome)
    : parameters_(std::move(source)),
      options_(std::move(options)),
      outcome_(outcome),
      verify_every_(verification_interval(options_)),
      unused_(options_) {
    if (EngineOwner own = group.engine().duplicate()) {
        own_group_ = std::make_unique<ProcessGroup>(std::move(own));
    }
    group_ = own_group_ ? own_group_.get() : &group;
    const JobState& job = *group.engine().control()->job_state();
    if (job.is_elastic()) elastic_job_ = &job;
    const PurposeScope here = purpose("the constructor");

    std::string problem, its_parameter;
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
        its_parameter = parameter_of(error);
    }
    check_no_problem<ArgumentError>(*group_, problem, its_parameter);
    check_no_problem<BackendError>(*group_, device_problem);
    check_equal_tables(*group_, "models",
                       option_lines(options_) + parameters_.table() + buffer_lines(buffers_.buffers()) +
                           device_lines(parameters_.refs(), buffers_.buffers()) +
                           (lanes.empty() ? "" : "steps in dptk's CUDA kernels\n"));
    make_steps(std::move(lanes));
    make_buckets(first_launch_order(parameters_.sent()));
    read_averages();
    clock_.emplace(*group_);
    clock_->statistics().first_bucket_bytes = buckets_.gradient_bytes(parameters_.refs());
}

DPTK_INLINE std::unique_ptr<GradientReducer> GradientReducer::make(
    ProcessGroup& group, ParameterSource source, const DistributedDataParallelOptions& options,
    Outcome outcome) {
    if (!group.is_elastic())
        return std::make_unique<GradientReducer>(group, std::move(source), options, outcome);
    if (options.buffers && !options.broadcast_buffers)
        throw ArgumentError("an elastic job needs broadcast_buffers, since ranks that join have no buffers");
    if (outcome == Outcome::unreduced) group.refuse_elastic("ShardedOptimizer with fused steps");
    ProcessGroup alone = SelfCommunicator(SelfTransport());
    auto reducer = std::make_unique<GradientReducer>(alone, std::move(source), options, outcome);
    reducer->awaited_group_ = &group;
    return reducer;
}

DPTK_INLINE std::unique_ptr<GradientReducer> GradientReducer::over(ProcessGroup& group) const {
    return std::make_unique<GradientReducer>(group, parameters_.source(), options_, outcome_);
}

DPTK_INLINE void GradientReducer::check_members() const {
    if (awaited_group_ != nullptr) {
        if (ElasticGroup::is_complete(*awaited_group_))
            throw ArgumentError(text("this ", owner(), " does not belong to the ElasticState of its group"));
        throw MembershipChanged(
            "this rank does not have the state of its elastic job yet: call ElasticState::restore()");
    }
    if (elastic_job_ != nullptr) elastic_job_->check();
}

DPTK_INLINE PurposeScope GradientReducer::purpose(const char* call) {
    return {
        group_->engine(),
        {.call = call, .owner = owner(), .step = clock_ ? clock_->statistics().steps : CallPurpose::no_step},
        own_group_ ? PurposeScope::End::keeps : PurposeScope::End::resets};
}

DPTK_INLINE void GradientReducer::read_all_addresses() {
    const std::lock_guard lock(mutex_);
    check_not_begun("step()");
    parameters_.read_all_addresses();
    read_averages();
}

DPTK_INLINE void GradientReducer::read_averages() {
    if (!options_.reduce_in_f32) return;
    if (averages_.empty()) averages_ = parameters_.refs();  // later only the addresses change
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const Buffer average = buckets_.average(i, parameters_.tied(), parameters_[i]);
        averages_[i].value = parameters_[i].value;
        averages_[i].gradient = average.data;
        averages_[i].gradient_dtype = average.dtype;
        if (average.dtype != parameters_[i].gradient_buffer().dtype) averages_[i].lazy_gradient = {};
    }
}

DPTK_INLINE void GradientReducer::broadcast_values(int root) {
    const std::lock_guard lock(mutex_);
    const PurposeScope here = purpose("broadcast_values()");
    check_not_begun("broadcast_values()");
    std::string problem, its_parameter;
    try {
        parameters_.read_addresses();
        buffers_.read();
    } catch (const std::exception& error) {  // may come from the program's own code
        problem = error.what();
        its_parameter = parameter_of(error);
    }
    check_no_problem<ArgumentError>(*group_, problem, its_parameter);
    buffers_.broadcast(*group_, root, options_.stream);
    parameters_.broadcast_values(*group_, root, options_.stream);
}

DPTK_INLINE Buffer GradientReducer::gradient_memory(std::size_t i) {
    const std::lock_guard lock(mutex_);
    check_in_bucket(i);
    pinned_ = true;
    return buckets_.gradient(parameters_.tied().first(i), parameters_[i].count);
}

DPTK_INLINE std::shared_ptr<void> GradientReducer::bucket_memory(std::size_t i) {
    const std::lock_guard lock(mutex_);
    check_in_bucket(i);
    pinned_ = true;
    return buckets_[buckets_.place(parameters_.tied().first(i)).bucket].memory();
}

DPTK_INLINE void GradientReducer::check() {
    const std::lock_guard lock(mutex_);
    const PurposeScope here = purpose("check()");
    check_not_begun("check()");
    if (!steps_->status_ok(own_)) throw_problems();
}

DPTK_INLINE void GradientReducer::check_in_bucket(std::size_t i) const {
    check_index(i);
    if (parameters_.ignored()[i])
        throw ArgumentError(
            text("parameter ", parameters_[i].name, " has no bucket: it is in options.parameters_to_ignore"));
}

DPTK_INLINE std::size_t GradientReducer::steps() noexcept {
    return clock_->statistics().steps;
}

DPTK_INLINE void GradientReducer::record_communication(const char* name, trace::Clock::time_point begin) {
    const std::lock_guard lock(mutex_);
    clock_->record_communication(name, begin);
}

DPTK_INLINE DDPStatistics GradientReducer::statistics() {
    const std::lock_guard lock(mutex_);
    DDPStatistics now = clock_->statistics();
    now.has_fused_steps = outcome_ == Outcome::unreduced;
    now.bucket_bytes = buckets_.gradient_bytes(parameters_.refs());
    return now;
}

DPTK_INLINE void GradientReducer::set_comm_hook(std::shared_ptr<CommHook> hook) {
    const std::lock_guard lock(mutex_);
    if (awaited_group_ != nullptr || elastic_job_ != nullptr)
        throw ArgumentError("communication hooks do not support elastic jobs: see docs/elastic.md");
    const PurposeScope here = purpose("set_comm_hook()");
    check_not_begun("set_comm_hook()");
    check_equal_tables(*group_, "hooks", hook ? hook->description() : std::string("none"));
    hook_ = hook;
    steps_->set_hook(std::move(hook));
}

DPTK_INLINE void GradientReducer::begin_step() {
    begin(std::nullopt);
}

DPTK_INLINE void GradientReducer::synchronize() {
    const std::lock_guard lock(mutex_);
    const PurposeScope here = purpose("synchronize()");
    if (local_scopes_ > 0) return;
    check_members();
    in_step([&] {
        if (!begun_) begin_in_synchronize(std::nullopt);
        end_step();
    });
}

DPTK_INLINE void GradientReducer::synchronize(std::size_t sample_count) {
    const std::lock_guard lock(mutex_);
    const PurposeScope here = purpose("synchronize()");
    check_counts_allowed();
    check_not_begun("synchronize(n)");
    check_members();
    in_step([&] {
        begin_in_synchronize(sample_count);
        end_step();
    });
}

DPTK_INLINE void GradientReducer::cancel_step() {
    const std::lock_guard lock(mutex_);
    const PurposeScope here = purpose("cancel_step()");
    if (local_scopes_ > 0) return;
    if (!begun_) begin_locked(std::nullopt);
    own_.note("canceled the step");
    own_.has_addresses = false;
    try {
        end_step();
    } catch (const Error& error) {
        if (!error.agreed()) throw;
    }
}

DPTK_INLINE void GradientReducer::shadow() {
    const std::lock_guard lock(mutex_);
    const PurposeScope here = purpose("a step of Join");
    check_not_begun("shadow()");
    own_.is_shadow = true;
    in_step([&] {
        begin_in_synchronize(0);
        end_step();
    });
}

DPTK_INLINE void GradientReducer::set_joined(const JoinRound& round) {
    const std::lock_guard lock(mutex_);
    check_not_begun("a step of Join");
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
    check_not_begun("a call that changes averages");
    return *postprocessing_;
}

DPTK_INLINE void GradientReducer::enter_local_scope() {
    const std::lock_guard lock(mutex_);
    check_not_begun("no_sync()");
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
    if (options_.reduce_in_f32 && outcome_ != Outcome::everywhere)
        throw ArgumentError(
            "ShardedOptimizer does not support reduce_in_f32: it averages 16-bit gradients "
            "in their own type, and passes them to the optimizer in its type");
    if (options_.reduce_in_f32 && options_.gradient_as_bucket_view)
        throw ArgumentError(
            "reduce_in_f32 and gradient_as_bucket_view exclude each other: 16-bit gradients "
            "cannot lie in buckets of f32");
}

DPTK_INLINE DeviceLanes GradientReducer::make_lanes() const {
    DeviceLanes lanes;
    const bool has_host_buffers = buffers_.has_any() && !buffers_.are_on_devices();
    if (outcome_ == Outcome::everywhere && !has_host_buffers)
        lanes =
            DeviceLanes::make(parameters_.refs(), first_launch_order(parameters_.sent()), options_.stream);
    if (options_.stream != StreamRef() && lanes.empty()) {
        const auto on_host = detail::find_if(parameters_.refs(), [](const ParameterRef& parameter) {
            return parameter.device.type == DeviceType::cpu;
        });
        if (on_host != parameters_.refs().end())
            throw ArgumentError(text("options.stream requires all gradients in device memory, but gradient ",
                                     on_host->name, " is in host memory"),
                                {.parameter = on_host->name});
        throw ArgumentError(
            has_host_buffers ? "options.stream requires all buffers in device memory, but they are in host "
                               "memory"
                             : "options.stream requires DistributedDataParallel in a program that is built "
                               "with dptk's CUDA kernels");
    }
    if (options_.reduce_in_f32 && lanes.empty()) require_host_memory(parameters_.refs(), "reduce_in_f32");
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
        steps_ = std::make_unique<HostSteps>(*group_, parameters_, buckets_, options_, outcome_, is_own,
                                             is_marked());
    } else {
        steps_ =
            std::make_unique<DeviceSteps>(*group_, parameters_, buckets_, options_, std::move(lanes), is_own);
    }
    postprocessing_.emplace(*group_, parameters_, buckets_, *steps_);
}

DPTK_INLINE void GradientReducer::make_buckets(const std::vector<std::size_t>& order) {
    const bool on_device = steps_->lanes() != nullptr;
    steps_->on_buckets_rebuilt();
    buckets_ = {};  // frees the previous buckets before the new ones are allocated
    buckets_ = BucketSet(*group_, parameters_.refs(), order, options_, outcome_, on_device);
    reset_step();
}

DPTK_INLINE void GradientReducer::begin(std::optional<std::size_t> sample_count) {
    const std::lock_guard lock(mutex_);
    const PurposeScope here = purpose("begin_step()");
    if (sample_count) check_counts_allowed();
    if (local_scopes_ > 0) return;
    check_not_begun("begin_step()");
    check_members();
    in_step([&] {
        begin_locked(sample_count);
        if (sends_early()) begin_among_ranks();
        if (buffers_.has_any() && may_communicate_here()) static_cast<void>(may_proceed());
    });
}

DPTK_INLINE void GradientReducer::check_counts_allowed() const {
    if (local_scopes_ == 0) return;
    throw ArgumentError(text("rank ", group_->rank(),
                             ": a sample count was given inside no_sync, which gives all micro-batches the "
                             "same weight: use accumulate(n) to weight them by their samples"));
}

DPTK_INLINE void GradientReducer::check_not_begun(std::string_view call) const {
    if (!begun_) return;
    throw ArgumentError(text("rank ", group_->rank(), ": ", call,
                             " is not allowed during a step: end the step first, with synchronize() or "
                             "cancel_step()"));
}

DPTK_INLINE void GradientReducer::begin_locked(std::optional<std::size_t> sample_count) {
    begun_ = true;
    overlaps_ = steps_->overlaps();
    clock_->begin();
    own_.number = clock_->statistics().steps;
    own_.samples = sample_count;
    if (!own_.samples && steps_->has_accumulated()) own_.samples = 0;
    read_buffers();
    if (!is_marked()) return;
    read_addresses();
    if (own_.samples != std::size_t{0}) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (!parameters_.ignored()[i]) marks_.mark(i, State::unused, buckets_);
    }
}

DPTK_INLINE void GradientReducer::begin_in_synchronize(std::optional<std::size_t> sample_count) {
    begin_locked(sample_count);
    clock_->begin_at_previous_end();
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
        if (lazy == LazyGradients::found) {
            parameters_.read_all_addresses();
        } else {
            parameters_.read_addresses();
        }
        if (options_.gradient_as_bucket_view) buckets_.check_views(parameters_.refs());
    } catch (const std::exception& error) {  // may come from the program's own for_each_parameter
        own_.note(error.what(), parameter_of(error));
        own_.has_addresses = false;
    }
}

DPTK_INLINE void GradientReducer::read_addresses_again() {
    if (!own_.has_addresses) return;
    const auto is_ready = [&](std::size_t i) { return marks_[i] == State::ready; };
    try {
        parameters_.read_addresses_again(is_ready, options_.gradient_as_bucket_view);
    } catch (const std::exception& error) {  // may come from the program's own for_each_parameter
        own_.note(error.what(), parameter_of(error));
        own_.has_addresses = false;
    }
}

DPTK_INLINE void GradientReducer::begin_among_ranks() {
    if (steps_->is_captured()) check_capturable();
    hash_values();
    steps_->begin(own_);
}

DPTK_INLINE void GradientReducer::hash_values() {
    const bool is_due = verify_every_ > 0 && own_.number > 0 && own_.number % verify_every_ == 0 &&
                        (!hook_ || hook_->keeps_values_equal()) && !steps_->is_captured();
    if (!is_due) return;
    if (!is_marked()) read_addresses();  // otherwise begin_locked() has read them
    if (own_.has_addresses && !own_.is_shadow)
        own_.hash = short_hash(value_hashes(parameters_, steps_->lanes()));
    if (!steps_->lanes()) return;  // the step's header carries the hash
    std::vector<std::uint64_t> hashes = group_->all_gather_value(own_.hash ? *own_.hash : no_hash);
    std::erase(hashes, no_hash);
    if (!detail::all_equal(hashes)) own_.note_drift();
}

DPTK_INLINE bool GradientReducer::may_proceed() {
    if (!steps_->has_begun() && steps_->is_captured()) check_capturable();
    if (!steps_->has_begun()) hash_values();
    if (!steps_->may_proceed(own_)) return false;
    if (buffers_.has_any() && !std::exchange(buffers_are_sent_, true))
        steps_->send(buffers_, steps_->joined().first, own_);
    return true;
}

DPTK_INLINE void GradientReducer::check_capturable() {
    try {
        const bool settled =
            rebuilt_ || !is_marked() || options_.gradient_as_bucket_view || options_.reduce_in_f32;
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
    const std::lock_guard lock(mutex_);
    check_index(i);
    if (local_scopes_ > 0 || parameters_.ignored()[i]) return;
    in_step([&] {
        if (!begun_) begin_by_mark(parameters_[i].name);
        mark_locked(i, state, gradient);
    });
}

DPTK_INLINE void GradientReducer::mark_ready_at(const void* gradient) {
    const std::lock_guard lock(mutex_);
    if (local_scopes_ > 0) return;
    in_step([&] { mark_address(gradient); });
}

DPTK_INLINE void GradientReducer::mark_address(const void* gradient) {
    if (!begun_) begin_by_mark("at an address");
    if (!is_marked()) return note_mark(0, State::ready);
    if (!own_.has_addresses) return;
    std::size_t i = parameters_.index_of_gradient(gradient);
    if (i == parameters_.size())
        return own_.note(
            "mark_ready(gradient) was called with an address at which no gradient begins: pass the "
            "gradient's first element, or for lazy gradients and parameters without elements their index");
    if (parameters_.ignored()[i]) return;
    while (marks_[i] != State::waiting && parameters_.tied().next(i) < parameters_.size())
        i = parameters_.tied().next(i);
    mark_locked(i, State::ready, nullptr);
}

DPTK_INLINE std::size_t GradientReducer::index_of(std::string_view name) const {
    const std::vector<ParameterRef>& refs = parameters_.refs();
    const auto found = detail::find(refs, name, &ParameterRef::name);
    if (found != refs.end()) return static_cast<std::size_t>(found - refs.begin());
    constexpr std::size_t limit = 8;
    std::string names;
    for (std::size_t i = 0; i < std::min(limit, refs.size()); ++i)
        names += (i == 0 ? "" : ", ") + refs[i].name;
    throw ArgumentError(text("rank ", group_->rank(), ": the model has no parameter ", name, ": it has ",
                             names, refs.size() > limit ? ", ..." : ""),
                        {.rank = group_->rank(), .parameter = std::string(name)});
}

DPTK_INLINE void GradientReducer::begin_by_mark(std::string_view what) {
    if (steps_->has_accumulated())
        own_.note(text("gradient ", what,
                       " was marked after accumulate() without begin_step(n): call begin_step(n) first"));
    begin_locked(std::nullopt);
}

DPTK_INLINE void GradientReducer::mark_locked(std::size_t i, State state, void* gradient) {
    const bool may_send = sends_early();
    if (is_marked() && !steps_->has_begun() && may_send) {
        // Starting the exchange here lets it finish before the first bucket is full.
        const PurposeScope here = purpose("mark_ready()");
        begin_among_ranks();
    }
    if (own_.samples == std::size_t{0}) return;
    note_mark(i, state);
    if (state == State::ready && is_marked()) set_lazy_gradient(i, gradient);
    if (!may_send) return;
    // The last bucket is left to synchronize(): it carries the status, and later marks may still be
    // mistakes.
    while (steps_->next() + 1 < buckets_.size() && marks_.is_complete(steps_->next())) {
        const PurposeScope here = purpose("mark_ready()");
        if (!may_proceed()) return;
        launch();
    }
}

DPTK_INLINE void GradientReducer::note_mark(std::size_t i, State state) {
    if (!is_marked()) return own_.note("a gradient was marked, but options.ready is Ready::at_synchronize");
    if (!marks_.mark(i, state, buckets_))
        own_.note(text("gradient ", parameters_[i].name, " was marked twice"), parameters_[i].name);
    if (state == State::ready && unused_.is_permanently_unused(parameters_.tied().first(i)))
        own_.note(text("static_graph: gradient ", parameters_[i].name,
                       " was marked ready, but no rank used its parameter in the first step"),
                  parameters_[i].name);
}

DPTK_INLINE void GradientReducer::set_lazy_gradient(std::size_t i, void* gradient) {
    if (gradient == nullptr && !parameters_.has_lazy_gradients()) return;
    const ParameterRef& parameter = parameters_[i];
    const bool is_lazy = static_cast<bool>(parameter.lazy_gradient);
    if (parameter.count == 0 || (!is_lazy && gradient == nullptr)) return;
    if (!is_lazy)
        return own_.note(text("gradient ", parameter.name,
                              " was marked with an address: mark_ready(i, address) is only for parameters "
                              "with lazy gradients"),
                         parameter.name);
    if (gradient == nullptr)
        return own_.note(text("the lazy gradient ", parameter.name,
                              " was marked without its address: call mark_ready(i, address)"),
                         parameter.name);
    parameters_.set_gradient(i, gradient);
    if (options_.gradient_as_bucket_view && !buckets_.is_view(i, parameter))
        own_.note(buckets_.view_problem(i, parameter), parameter.name);
}

DPTK_INLINE void GradientReducer::check_lazy_gradients() {
    if (!parameters_.has_lazy_gradients()) return;
    std::vector<std::pair<const void*, std::size_t>> lazy;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (parameters_[i].lazy_gradient && parameters_[i].gradient != nullptr && parameters_[i].count != 0)
            lazy.emplace_back(parameters_[i].gradient, i);
    }
    detail::sort(lazy);
    for (std::size_t n = 1; n < lazy.size(); ++n) {
        if (lazy[n].first == lazy[n - 1].first)
            own_.note(text("the lazy gradients ", parameters_[lazy[n - 1].second].name, " and ",
                           parameters_[lazy[n].second].name,
                           " have one address: list tied parameters with lazy gradients only once"),
                      parameters_[lazy[n].second].name);
    }
}

DPTK_INLINE void GradientReducer::find_gradients() {
    if (!parameters_.has_lazy_gradients() || !own_.has_addresses || own_.is_shadow) return;
    group_->engine().control()->fail_job_on_error([&] {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (buckets_.has(i) && !unused_[i]) parameters_.find_gradient(i, IfMissing::make);
        }
    });
}

DPTK_INLINE void GradientReducer::end_step() {
    clock_->end_compute();
    const trace::Span span("synchronize");
    if (is_marked()) {
        read_addresses_again();
    } else {
        read_addresses();
    }
    if (!may_proceed()) throw_problems();
    check_lazy_gradients();
    while (steps_->next() < buckets_.size()) launch();
    // This call must follow all buckets: some buckets are sent before all marks are known, and the number
    // of such buckets differs between ranks.
    if (unused_.must_exchange()) {
        if (steps_->has_accumulated()) {
            unused_.exchange(*group_, parameters_.size(), parameters_.sent());
        } else {
            unused_.exchange(*group_, parameters_.size(), marks_.arrived());
        }
    }
    find_gradients();
    reduction_ = steps_->reduction(own_);
    if (!steps_->finish(own_, unused_, *clock_)) throw_problems();
    clock_->end_step(marks_.arrived());
    read_averages();
    rebuild();
    reset_step();
}

DPTK_INLINE void GradientReducer::launch() {
    takes_part_.clear();
    for (const std::size_t i : buckets_[steps_->next()].indices()) takes_part_.push_back(takes_part(i));
    steps_->launch(own_, takes_part_);
}

DPTK_INLINE bool GradientReducer::takes_part(std::size_t i) {
    const TiedParameters& tied = parameters_.tied();
    for (std::size_t t = i; is_marked() && t < parameters_.size(); t = tied.next(t)) {
        if (marks_[t] != State::waiting) continue;
        if (!options_.find_unused_parameters)
            own_.note(text("gradient ", parameters_[t].name,
                           " was neither marked ready nor unused before synchronize()"),
                      parameters_[t].name);
        marks_.mark(t, State::unused, buckets_);
    }
    return marks_.gradient(i) != State::unused && parameters_.has_gradient(i) && own_.has_addresses &&
           !own_.is_shadow;
}

DPTK_INLINE void GradientReducer::rebuild() {
    const bool may_change = options_.find_unused_parameters && !options_.static_graph;
    const bool must_stay =
        options_.gradient_as_bucket_view || options_.reduce_in_f32 || outcome_ != Outcome::everywhere;
    if (rebuilt_ || !is_marked() || may_change || must_stay) return;
    const NewOrder agreed =
        agree_on_order(*group_, pinned_, marks_.arrived(), first_launch_order(parameters_.sent()));
    rebuilt_ = agreed.is_settled;
    if (!agreed.order.empty()) make_buckets(agreed.order);
}

DPTK_INLINE void GradientReducer::throw_problems() {
    Problems problems = gather_problems(*group_, own_.problem, own_.parameter);
    std::uint8_t kinds[] = {0, 0};  // whether a rank has noticed drift, and whether one has another problem
    if (own_.has_drifted) kinds[0] = 1;
    if (own_.has_mistake) kinds[1] = 1;
    if (verify_every_ > 0) group_->all_reduce(kinds, ReduceOp::max);
    const bool has_drifted = kinds[0] != 0 && kinds[1] == 0;
    const std::size_t step = own_.number;
    const bool compares = own_.hash.has_value();
    steps_->discard_sums();
    unused_.discard();
    const DeviceLanes* const lanes = steps_->lanes();
    reset_step();
    if (has_drifted) {
        const Drift drift = find_drift(*group_, parameters_, lanes, compares);
        throw_agreed(*group_, MismatchError(text("before step ", step, ": ", drift.text),
                                            {.parameter = drift.parameter, .step = step}));
    }
    problems.context.step = step;
    throw_agreed(*group_, ArgumentError("synchronize: " + problems.text, std::move(problems.context)));
}

DPTK_INLINE void GradientReducer::reset_step() {
    begun_ = false;
    buffers_are_sent_ = false;
    own_ = {};
    steps_->reset();
    marks_.reset(parameters_.size(), buckets_, parameters_.tied());
    if (clock_) clock_->end();
}

DPTK_INLINE bool GradientReducer::may_communicate_here() const {
    return own_group_ != nullptr && group_->engine().callable_from_this_thread();
}

DPTK_INLINE bool GradientReducer::sends_early() const {
    return overlaps_ && may_communicate_here();
}

DPTK_INLINE void GradientReducer::check_index(std::size_t i) const {
    if (i >= parameters_.size()) {
        throw ArgumentError(text("rank ", group_->rank(), ": invalid parameter index ", i, ": the model has ",
                                 parameters_.size(), " parameters"));
    }
}

}  // namespace DPTK_NAMESPACE::detail
