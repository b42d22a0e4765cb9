#pragma once

#include "dptk/comm/engine/engine.hpp"

#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/call_wait.hpp"
#include "dptk/comm/detail/backoff.hpp"
#include "dptk/comm/detail/device_call.hpp"
#include "dptk/comm/detail/joint_work.hpp"
#include "dptk/comm/engine/active_call.hpp"
#include "dptk/comm/engine/call_checker.hpp"
#include "dptk/comm/engine/device_engines.hpp"
#include "dptk/comm/engine/enqueued_calls.hpp"
#include "dptk/comm/engine/started_calls.hpp"
#include "dptk/comm/engine/work_queue.hpp"
#include "dptk/comm/stream_transport.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/launch/detail/join_job.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/debug.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

// Around a call.

template <class Operation>
[[gnu::always_inline]] inline decltype(auto) Engine::in_transport(Operation&& operation) const {
    if (has_own_control_ && !can_.is_interruptible) {
        try {
            return operation();
        } catch (const BackendError&) {  // its cause may be that the ranks' calls differ, which rank 0 finds
            control_->throw_verdict();
            throw;
        }
    }
    const CallWaits waits(*job_state_);
    if (has_own_control_ || !control_->has_store()) return operation();
    return with_first_cause(*job_state_, operation);
}

template <class Operation>
[[gnu::always_inline]] inline void Engine::track(const Collective& call, Operation&& operation) const {
    ActiveCall(*tracker_, call).run([&] {
        if (checker_) [[unlikely]]
            checker_->check(call);
        operation();
    });
}

template <class Make>
auto Engine::make_tracked(const Collective& call, Make&& make_result) const {
    const ActiveCall active(*tracker_, call);
    return active.run([&] {
        if (checker_) {
            checker_->announce();
            const CallerState::WaitScope here(checker_->caller(), checker_->channel());
            checker_->check(call);
        }
        return in_transport(make_result);
    });
}

template <class Operation>
void Engine::in_order(Operation&& operation) {
    check_caller({.verb = Verb::duplicate});
    launch_started();
    control_->fail_job_on_error([&] {
        finish_earlier();
        operation();
    });
}

// Opening.

/// Throws ArgumentError if the options contradict the transport.
DPTK_INLINE void check_options(const Transport& transport, const InitOptions& options) {
    const int rank = transport.rank();
    const std::string start = text("rank ", rank, ": the transport ", transport.backend(), " is rank ", rank,
                                   " of ", transport.size(), ", but the options have ");
    if (options.rank && options.rank != rank) throw ArgumentError(text(start, "rank ", *options.rank));
    if (options.world_size && options.world_size != transport.size())
        throw ArgumentError(text(start, "world size ", *options.world_size));
    if (!options.backend.empty() && options.backend != transport.backend())
        throw ArgumentError(text(start, "the backend ", options.backend));
    if (parse_init_method(options.init_method).rendezvous == RendezvousKind::mpi)
        throw ArgumentError(text(start, "the init method ", options.init_method,
                                 ": expected env://, tcp://, file:// or slurm://, or a store"));
}

DPTK_INLINE std::shared_ptr<ControlPlane> control_of(const Transport& transport, const InitOptions& options) {
    if (std::shared_ptr<ControlPlane> own = transport.control()) return own;
    check_options(transport, options);
    InitOptions complete = options;
    complete.rank = transport.rank();
    complete.world_size = transport.size();
    JobRequest request = resolve(complete);
    ControlPlaneOptions plane{.rank = transport.rank(), .size = transport.size(), .timeout = request.timeout};
    if (!transport.capabilities().is_interruptible) {
        plane.last_resort = [rank = transport.rank()](const std::string& cause) {
            log(LogLevel::error, rank, "ends the process: " + cause);
            std::_Exit(EXIT_FAILURE);
        };
    }
    const auto job_state = std::make_shared<JobState>();
    const bool has_store = options.store || !options.init_method.empty();
    if (!has_store) return ControlPlane::make(std::move(plane), job_state);
    return join_job(request, std::move(plane), job_state).control;
}

DPTK_INLINE PurposeScope::PurposeScope(Engine& engine, const CallPurpose& purpose, End end)
    : engine_(end == End::resets ? &engine : nullptr) {
    engine.set_purpose(purpose);
}

DPTK_INLINE PurposeScope::~PurposeScope() {
    if (engine_ != nullptr) engine_->set_purpose({});
}

DPTK_INLINE void EngineCloser::operator()(Engine* engine) const noexcept {
    engine->end();
}

DPTK_INLINE Engine::Engine(std::unique_ptr<Transport> transport, std::shared_ptr<ControlPlane> control,
                           ChannelIdentity identity, std::shared_ptr<CallerState> caller,
                           std::function<bool()> progress)
    : control_(std::move(control)),
      job_state_(control_->job_state()),
      tracker_(
          std::make_shared<CallTracker>(std::move(identity), CallTracker::Calls::collectives, call_reader)),
      transport_(std::move(transport)),
      stream_(dynamic_cast<StreamTransport*>(transport_.get())),
      can_(transport_->capabilities()),
      has_own_control_(transport_->control() != nullptr),
      progress_(std::move(progress)),
      caller_(std::move(caller)),
      queue_(std::make_unique<WorkQueue>()),
      started_(std::make_unique<StartedCalls>()) {}

DPTK_INLINE Engine::~Engine() = default;

DPTK_INLINE EngineOwner Engine::make(std::unique_ptr<Transport> transport,
                                     std::shared_ptr<ControlPlane> control, ChannelIdentity identity,
                                     std::shared_ptr<CallerState> caller, std::function<bool()> progress) {
    const std::shared_ptr<Engine> engine(new Engine(std::move(transport), std::move(control),
                                                    std::move(identity), std::move(caller),
                                                    std::move(progress)));
    engine->begin(engine);
    engine->self_ = engine;
    return EngineOwner(engine.get());
}

DPTK_INLINE void Engine::begin(const std::shared_ptr<Engine>& self) {
    if (can_.progress && !progress_) {
        // Held weakly, since engines over other transports may outlive this one.
        progress_ = [engine = std::weak_ptr<Engine>(self)] {
            const std::shared_ptr<Engine> here = engine.lock();
            return here && here->transport_->progress();
        };
    }
    if (stream_ != nullptr) enqueued_ = std::make_unique<EnqueuedCalls>(*this);
    if (size() > 1 && control_->has_store() && debug_level() == DebugLevel::detail)
        checker_ = std::make_shared<CallChecker>(control_, tracker_, caller_, progress_);
    // Calls on a stream have no order that the ranks share with other calls.
    if (size() > 1 && control_->compares_calls() && stream_ == nullptr) tracker_->keep_history();
    control_->open(tracker_);  // last, since close() must follow
}

DPTK_INLINE EngineOwner Engine::open(std::unique_ptr<Transport> transport, const InitOptions& options) {
    std::shared_ptr<ControlPlane> control = control_of(*transport, options);
    std::vector<int> ranks(static_cast<std::size_t>(transport->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    const std::chrono::milliseconds timeout = control->timeout();
    return open(std::move(transport), std::move(control),
                {.name = "0", .ranks = std::move(ranks), .timeout = timeout});
}

DPTK_INLINE EngineOwner Engine::open(std::unique_ptr<Transport> transport) {
    return open(std::move(transport), InitOptions());
}

DPTK_INLINE EngineOwner Engine::open(std::unique_ptr<Transport> transport,
                                     std::shared_ptr<ControlPlane> control, ChannelIdentity identity,
                                     std::function<bool()> progress) {
    return make(std::move(transport), std::move(control), std::move(identity),
                std::make_shared<CallerState>(), std::move(progress));
}

DPTK_INLINE EngineOwner Engine::child(std::unique_ptr<Transport> transport, ChannelIdentity identity) const {
    EngineOwner engine = make(std::move(transport), control_, std::move(identity), caller_, progress_);
    engine->algorithm_ = algorithm_;
    return engine;
}

DPTK_INLINE ChannelIdentity Engine::next_identity(std::span<const int> ranks,
                                                  std::optional<std::chrono::milliseconds> timeout) {
    // The subgroups that one call creates differ in their first rank, which makes their names unique. A rank
    // that is in none of these subgroups needs no name.
    const int first = ranks.empty() ? -1 : ranks.front();
    ChannelIdentity next{.name = text(identity().name, '.', tracker_->next_child(), '-', first),
                         .ranks = {},
                         .timeout = timeout.value_or(identity().timeout)};
    for (const int member : ranks) next.ranks.push_back(identity().ranks[static_cast<std::size_t>(member)]);
    return next;
}

DPTK_INLINE EngineOwner Engine::duplicate() {
    if (!can_.duplicate) return nullptr;
    throw_if_failed();
    EngineOwner copy;
    in_order([&] {
        std::unique_ptr<Transport> transport =
            make_tracked({.verb = Verb::duplicate}, [&] { return transport_->duplicate(); });
        ChannelIdentity same = identity();
        same.name += text('.', tracker_->next_child());
        copy = child(std::move(transport), std::move(same));
    });
    return copy;
}

DPTK_INLINE EngineOwner Engine::subgroup(std::span<const int> ranks,
                                         std::optional<std::chrono::milliseconds> timeout) {
    throw_if_failed();
    EngineOwner part;
    in_order([&] {
        ChannelIdentity identity;
        std::unique_ptr<Transport> transport =
            make_tracked({.verb = Verb::subgroup}, [&]() -> std::unique_ptr<Transport> {
                identity = next_identity(ranks, timeout);  // after the check of the call
                return detail::contains(ranks, rank()) ? transport_->subgroup(ranks, identity.name) : nullptr;
            });
        if (transport) part = child(std::move(transport), std::move(identity));
    });
    return part;
}

DPTK_INLINE EngineOwner duplicate_or_throw(Engine& engine) {
    if (EngineOwner copy = engine.duplicate()) return copy;
    throw ArgumentError("the transport " + engine.backend() + " has no duplicate()");
}

// Checks.

DPTK_INLINE void Engine::check_caller(const Collective& call) const {
    if (fork_guard_.is_in_child()) [[unlikely]]
        refuse_child(call);
    if (stream_ != nullptr) return;
    const std::optional<std::uint64_t> active = tracker_->active_call();
    if (!active) [[likely]]
        return;
    // If the background thread executed this call, the queue would not be idle while the call is active.
    if (queue_->idle() && tracker_->active_call() == active) refuse_second_caller(call);
}

DPTK_INLINE void Engine::check_memory(const Collective& call) const {
    if (can_.device_memory || (!call.input.on_device() && !call.output.on_device())) [[likely]]
        return;
    if (takes_device_memory(call)) return;
    throw ArgumentError(text("rank ", rank(), ": ", describe(call), " on a device: ", no_devices_text()),
                        {.rank = rank()});
}

DPTK_INLINE std::string Engine::no_devices_text() const {
    return "the transport " + backend() +
           " supports only host memory. For device memory, use a ProcessGroup in a program that "
           "includes <dptk/comm/nccl.hpp> or <dptk/comm/staged.hpp>";
}

DPTK_INLINE void Engine::refuse_child(const Collective& call) const {
    throw ArgumentError(text(describe(call), " was called in a process that was forked from rank ", rank(),
                             ": only the rank itself may call its groups"),
                        {.rank = rank()});
}

DPTK_INLINE void Engine::refuse_second_caller(const Collective& call) const {
    throw ArgumentError(text("rank ", rank(), ": ", describe(call), " was called while another thread is in ",
                             tracker_->describe(tracker_->look()),
                             " of the same group: call a group from one thread at a time, or give each "
                             "thread a group of its own"),
                        {.rank = rank()});
}

DPTK_INLINE void Engine::begin_message(const Message& message) {
    if (fork_guard_.is_in_child()) refuse_child({});
    throw_if_failed();
    if (message.timeout.count() != 0) control_->look_often(message.timeout);
    const auto refuse = [&](std::string_view why) {
        throw ArgumentError(text("rank ", rank(), ": ", pack(message).describe(), ": ", why),
                            {.rank = rank()});
    };
    const bool is_probe = message.verb == Verb::probe;
    const bool from_any = message.verb != Verb::send && message.peer == any_rank;
    if (is_probe && !can_.probe) refuse("the transport " + backend() + " has no probe");
    if (from_any && !is_probe && !can_.recv_any) refuse("the transport " + backend() + " has no recv_any");
    if (!from_any && (message.peer < 0 || message.peer >= size()))
        refuse(text("peer ", message.peer, " is outside [0, ", size() - 1, "]"));
    if (message.peer == rank()) refuse("a rank cannot send to or receive from itself");
    if (from_any && size() == 1) refuse("expected at least 2 ranks, got 1");
    if ((message.tag < 0 || message.tag > max_tag) && !(is_probe && message.tag == any_tag))
        refuse(text("tag ", message.tag, " is outside [0, ", max_tag, "]"));
    if (message_tracker_) return;
    ChannelIdentity messages_identity = identity();
    messages_identity.name += "/messages";
    message_tracker_ = std::make_shared<CallTracker>(std::move(messages_identity),
                                                     CallTracker::Calls::messages, call_reader);
    control_->open(message_tracker_);
    if (enqueued_) enqueued_->open_messages(message_tracker_);
}

DPTK_INLINE void Engine::throw_if_failed() const {
    // Read before the transport's failure, which is always recorded before it fails the job.
    const bool job_has_failed = job_state_->failed();
    try {
        if (stream_ != nullptr) stream_->rethrow_failure();
        if (job_has_failed) job_state_->check();
    } catch (const Error& error) {
        ErrorAccess::add_rank(error, control_->rank());
        throw;
    }
}

// Executes a call.

// These three lead from a blocking call to the transport, and are always inlined: the overhead of a call is a
// third smaller then (bench/mpi_overhead.cpp).

[[gnu::always_inline]] inline void Engine::execute(const Collective& call) const {
    if (algorithms::needs_copy(call) && !call.shared_shape().on_device()) [[unlikely]]
        return run_on_copy(call);
    in_transport([&] { transport_->run(call); });
}

/// Executes the call on the program's own thread.
[[gnu::always_inline]] inline void Engine::run_on_caller(const Collective& call) const {
    std::optional<CallerState::WaitScope> here;
    if (checker_) [[unlikely]] {
        checker_->announce();
        here.emplace(checker_->caller(), checker_->channel());
    }
    track(call, [&] { execute(call); });
}

/// Executes the call, on any thread.
DPTK_INLINE void Engine::carry_out(const Collective& call) const {
    execute(call);
}

DPTK_INLINE void Engine::run_on_copy(const Collective& call) const {
    const algorithms::Scratch copy(call.input);
    carry_out(algorithms::on_copy(call, copy));
}

/// Executes the call in the transport's non-blocking form, if there is one for this call, and waits until the
/// call has ended: MPI does not match a blocking collective with a non-blocking one.
DPTK_INLINE void Engine::run_nonblocking(const Collective& call) const {
    ActiveCall(*tracker_, call).run([&] {
        const std::shared_ptr<WorkState> work = transport_->start(call);
        if (!work) return carry_out(call);
        work->wait(std::chrono::nanoseconds::max());
        if (const std::exception_ptr error = work->error()) std::rethrow_exception(error);
    });
}

DPTK_INLINE int Engine::carry_out(const Message& message, CallTracker& messages) const {
    const ActiveCall active(messages, message);
    return in_transport([&] { return transport_->transfer(message); });
}

// Collectives.

DPTK_INLINE void Engine::run(const Collective& call) {
    if (concerns_devices(call.shared_shape())) [[unlikely]] {
        if (call.verb == Verb::barrier) devices().run_barrier(call);
        Engine& there = engine_for(call.shared_shape());
        if (&there != this) return there.run(call);
    }
    if (call.timeout.count() != 0 || needs_algorithm(call)) [[unlikely]]
        return run_with_options(call);
    check_caller(call);
    if (stream_ != nullptr || job_state_->failed()) [[unlikely]]
        throw_if_failed();
    check_memory(call);
    if (enqueued_) return enqueued_->run(call);
    const ProgramWait::Scope waits(control_->program(), *tracker_);
    control_->fail_job_on_error([&]() __attribute__((always_inline)) {
        started_->finish_before(call);
        if (queue_->idle()) [[likely]] {
            run_on_caller(call);
        } else {
            Work(start_on_thread(call, nullptr, nullptr)).wait();
        }
    });
    if (call.verb == Verb::barrier) [[unlikely]]
        queue_->rethrow_dropped_error();
}

/// Executes a call that has a time limit, or for which the group has an algorithm.
DPTK_INLINE void Engine::run_with_options(const Collective& call) {
    std::optional<CallTimeout> limit;
    if (call.timeout.count() != 0) {
        control_->look_often(call.timeout);
        limit.emplace(*tracker_, call.timeout);
    }
    Collective plain = call;
    plain.timeout = {};
    if (needs_algorithm(call)) plain.algorithm = algorithm_;
    run(plain);
}

DPTK_INLINE Work Engine::start(const Collective& call, std::shared_ptr<const void> keep_alive,
                               std::function<void()> then) {
    if (concerns_devices(call.shared_shape())) [[unlikely]] {
        if (call.verb == Verb::barrier) {
            std::vector<Work> works = devices().start_barrier(call, keep_alive);
            works.push_back(start_here(call, std::move(keep_alive), std::move(then)));
            return join_works(std::move(works), control_);
        }
        Engine& there = engine_for(call.shared_shape());
        if (&there != this) return there.start(call, std::move(keep_alive), std::move(then));
    }
    return start_here(call, std::move(keep_alive), std::move(then));
}

DPTK_INLINE Work Engine::start_here(const Collective& call, std::shared_ptr<const void> keep_alive,
                                    std::function<void()> then) {
    check_caller(call);
    throw_if_failed();
    check_memory(call);
    if (call.timeout.count() != 0) control_->look_often(call.timeout);
    Collective chosen = call;
    if (needs_algorithm(call)) chosen.algorithm = algorithm_;
    if (enqueued_) {
        Work work = enqueued_->start(chosen, std::move(keep_alive));
        if (then) work.wait();  // does not block: `then` implies host memory, so the call has ended
        if (then) then();
        return work;
    }
    if (can_.progresses_by_caller)
        return Work(start_by_caller(chosen, std::move(keep_alive), std::move(then)), control_);
    return Work(start_on_thread(chosen, std::move(keep_alive), std::move(then)), control_, tracker_);
}

DPTK_INLINE std::shared_ptr<WorkState> Engine::start_on_thread(const Collective& call,
                                                               std::shared_ptr<const void> keep_alive,
                                                               std::function<void()> then) {
    if (checker_) checker_->announce();
    std::function<void()> prepared;
    control_->fail_job_on_error([&] { prepared = transport_->prepare(call); });
    std::shared_ptr<WorkState> work =
        queue_->start([engine = self_, keep = std::move(keep_alive), then = std::move(then), call,
                       operation = std::move(prepared)] {
            const CallTimeout limit(*engine->tracker_, call.timeout);
            engine->job_state_->check();
            engine->control_->fail_job_on_error([&] {
                engine->track(call, [&] {
                    if (operation) return operation();
                    engine->carry_out(call);
                });
            });
            if (then) then();
            return -1;
        });
    if (!checker_) return work;
    return make_pooled<CheckedWork>(std::move(work), checker_);
}

/// Starts a call that the transport progresses while the caller waits. A call that the transport cannot start
/// is deferred: it is executed when the caller waits for it.
DPTK_INLINE std::shared_ptr<WorkState> Engine::start_by_caller(const Collective& call,
                                                               std::shared_ptr<const void> keep_alive,
                                                               std::function<void()> then) {
    const bool has_algorithm =
        call.verb == Verb::all_reduce && call.algorithm != AllReduceAlgorithm::automatic;
    const bool nonblocking = !has_algorithm && !checker_;
    if (nonblocking && !started_->has_deferred()) {
        std::shared_ptr<WorkState> work;
        control_->fail_job_on_error([&] {
            started_->finish_before(call);
            work = transport_->start(call);
            if (work) const ActiveCall counted(*tracker_, call);
        });
        if (work) {
            work = tracked(std::move(work), tracker_, PackedCall(call), call.timeout, std::move(then));
            started_->add(call, work, std::move(keep_alive));
            return work;
        }
    }
    const auto deferred = [engine = self_, then = std::move(then), call, nonblocking] {
        const CallTimeout limit(*engine->tracker_, call.timeout);
        engine->job_state_->check();
        engine->control_->fail_job_on_error(
            [&] { nonblocking ? engine->run_nonblocking(call) : engine->run_on_caller(call); });
        if (then) then();
    };
    return started_->defer(call, deferred, poll_check(call), std::move(keep_alive));
}

/// Returns the function that a deferred call runs at each poll. It throws if the job has failed, and fails
/// the job if the first poll was longer ago than the timeout of a call.
DPTK_INLINE std::function<void()> Engine::poll_check(const Collective& call) const {
    const std::chrono::milliseconds own = call.timeout;
    return [state = job_state_, timeout = own.count() != 0 ? own : identity().timeout,
            call = PackedCall(call), rank = control_->rank(),
            deadline = std::optional<Deadline>()]() mutable {
        if (!deadline) deadline.emplace(timeout);
        if (deadline->passed())
            state->fail(
                text("rank ", rank, ": ", call.describe(), " has been polled for ", duration_text(timeout),
                     ", but polling does not run it: call Work::wait() without a timeout"),
                Failure::deadline);
        state->check();
    };
}

DPTK_INLINE std::shared_ptr<WorkState> Engine::tracked(std::shared_ptr<WorkState> work,
                                                       std::shared_ptr<CallTracker> tracker,
                                                       const PackedCall& call,
                                                       std::chrono::milliseconds timeout,
                                                       std::function<void()> then) const {
    return make_pooled<TrackedWork>(
        std::move(work), control_, std::move(tracker), call, timeout, std::move(then),
        can_.is_interruptible ? TrackedWork::AtFailure::ends : TrackedWork::AtFailure::continues);
}

DPTK_INLINE void Engine::finish_earlier() {
    started_->finish_before({.verb = Verb::duplicate});
    if (!queue_->idle()) queue_->start([] { return -1; })->wait(std::chrono::nanoseconds::max());
}

DPTK_INLINE void Engine::monitored_barrier(std::chrono::milliseconds timeout) {
    if (size() > 1 && !control_->has_store()) {
        throw ArgumentError(
            text("rank ", rank(),
                 ": monitored_barrier requires a control plane with a store, which the transport ", backend(),
                 " does not have in this job"));
    }
    throw_if_failed();
    in_order([&] {
        with_first_cause(*job_state_, [&] { control_->monitored_barrier(*tracker_, timeout, progress_); });
    });
}

// Messages.

DPTK_INLINE int Engine::run(const Message& message) {
    if (concerns_devices(message.buffer)) {
        Engine& there = engine_for(message.buffer);
        if (&there != this) return there.run(message);
    }
    begin_message(message);
    if (enqueued_) {
        enqueued_->run(message);
        return message.peer;
    }
    int peer = message.peer;
    const CallTimeout limit(*message_tracker_, message.timeout);
    const auto transfer = [&] { peer = carry_out(message, *message_tracker_); };
    if (can_.start_message) {
        control_->fail_job_on_error(transfer);
    } else {
        in_order(transfer);
    }
    return peer;
}

DPTK_INLINE Work Engine::start(const Message& message, std::shared_ptr<const void> keep_alive) {
    if (concerns_devices(message.buffer)) {
        Engine& there = engine_for(message.buffer);
        if (&there != this) return there.start(message, std::move(keep_alive));
    }
    begin_message(message);
    if (enqueued_) return enqueued_->start(message, std::move(keep_alive));
    if (can_.start_message) {
        std::shared_ptr<WorkState> work;
        control_->fail_job_on_error([&] {
            const CallWaits waits(*job_state_);
            work = tracked(transport_->start_message(message), message_tracker_, pack(message),
                           message.timeout, nullptr);
        });
        started_->add(work, std::move(keep_alive));
        return Work(work, control_);
    }
    const auto operation = [engine = self_, tracker = message_tracker_, keep = std::move(keep_alive),
                            message] {
        const CallTimeout limit(*tracker, message.timeout);
        engine->job_state_->check();
        int peer = message.peer;
        engine->control_->fail_job_on_error([&] { peer = engine->carry_out(message, *tracker); });
        return message.verb == Verb::recv ? peer : -1;
    };
    if (!can_.progresses_by_caller) return Work(queue_->start(operation), control_);
    const std::shared_ptr<QueuedWork> work = make_operation(operation);
    work->run();
    return Work(work, control_);
}

DPTK_INLINE std::optional<MessageInfo> Engine::try_probe(const Message& message) {
    launch_started();
    begin_message(message);
    std::optional<MessageInfo> found;
    control_->fail_job_on_error([&] { found = transport_->probe(message.peer, message.tag); });
    return found;
}

DPTK_INLINE MessageInfo Engine::probe(const Message& message) {
    launch_started();
    begin_message(message);
    std::optional<MessageInfo> found;
    const CallTimeout limit(*message_tracker_, message.timeout);
    const ActiveCall active(*message_tracker_, message);
    control_->fail_job_on_error([&] {
        for (Backoff pause; !found; pause()) {
            job_state_->check();
            found = transport_->probe(message.peer, message.tag);
        }
    });
    return *found;
}

// Memory and devices.

DPTK_INLINE std::shared_ptr<void> Engine::allocate(std::size_t bytes) {
    if (!can_.allocate) return allocate_aligned(bytes);
    throw_if_failed();
    std::shared_ptr<void> memory;
    in_order(
        [&] { memory = make_tracked(allocation_call(bytes), [&] { return transport_->allocate(bytes); }); });
    return memory;
}

DPTK_INLINE DeviceMemory Engine::allocate_on_device(std::size_t bytes, std::optional<int> device) {
    if (uses_devices_) {
        const int index = device ? *device : device_calls().current_device();
        Engine& there = device ? devices().connect_once(index) : devices().engine(index);
        return there.allocate_on_device(bytes, device);
    }
    if (!can_.device_memory)
        throw ArgumentError(text("rank ", rank(), ": allocate_on_device: ", no_devices_text()));
    throw_if_failed();
    DeviceMemory memory;
    in_order([&] { memory = transport_->allocate_on_device(bytes); });
    if (device && *device != memory.device.index)
        throw ArgumentError(text("rank ", rank(), ": cannot allocate memory on cuda:", *device,
                                 ": the transport ", backend(), " uses ", device_name(memory.device)));
    return memory;
}

DPTK_INLINE DeviceEngines& Engine::devices() {
    if (!devices_) devices_ = std::make_unique<DeviceEngines>(*this);
    return *devices_;
}

DPTK_INLINE Engine& Engine::engine_for(const Buffer& shape) {
    if (shape.on_device()) return devices().engine(shape.device.index);
    launch_started();
    return *this;
}

DPTK_INLINE void Engine::set_purpose(const CallPurpose& purpose) {
    tracker_->set_purpose(purpose);
    if (devices_) devices_->set_purpose(purpose);
}

DPTK_INLINE void Engine::launch_started() {
    if (enqueued_) enqueued_->launch_messages();
    if (devices_) devices_->launch_started();
}

DPTK_INLINE bool Engine::is_connected_for(const DeviceCall& call) const {
    return !uses_devices_ || (devices_ && devices_->is_connected_for(call));
}

DPTK_INLINE void Engine::run_on_devices(const DeviceCall& call) {
    if (!uses_devices_)
        throw ArgumentError(
            "this group does not support calls on several devices per process: use a ProcessGroup over MPI, "
            "Gloo "
            "or threads");
    devices().run(call);
}

DPTK_INLINE void Engine::note_agreed(const Error& error) {
    control_->agreed_errors().note(error);
}

// Closing.

DPTK_INLINE void Engine::end() noexcept {
    devices_.reset();
    if (fork_guard_.is_in_child()) return leak();
    const bool unwinding = std::uncaught_exceptions() > uncaught_exceptions_;
    if (unwinding && !control_->agreed_errors().is_unwinding())
        job_state_->fail(text("rank ", control_->rank(), " left its process group because of an exception"));
    close();
    const std::shared_ptr<Engine> self = std::move(self_);
}

/// Keeps what belongs to the parent process: its threads do not exist here, and its connections are in use.
DPTK_INLINE void Engine::leak() noexcept {
    queue_->leak();
    keep_for_ever(self_);
}

DPTK_INLINE void Engine::close() noexcept {
    const auto attempt = [&](auto&& step) {
        try {
            step();
        } catch (const std::exception& failure) {
            log(LogLevel::error, control_->rank(), text("while a process group closed: ", failure.what()));
        } catch (...) {
            log(LogLevel::error, control_->rank(),
                "while a process group closed: an exception that is not derived from std::exception");
        }
    };
    const auto leave_control = [&] {
        if (message_tracker_) control_->close(message_tracker_);
        control_->close(tracker_);
    };
    if (!job_state_->failed()) attempt([&] { started_->finish_all(); });
    if (job_state_->failed() && !can_.is_interruptible) {
        // Operations in flight cannot be stopped, and continue to use their memory.
        queue_->abandon();
        started_->abandon();
        return attempt(leave_control);
    }
    attempt([&] { queue_->finish(); });
    if (job_state_->failed()) attempt([&] { started_->await_end(); });
    if (enqueued_) attempt([&] { enqueued_->finish(); });
    if (stream_ != nullptr) attempt([&] { stream_->close(); });
    if (checker_ && !job_state_->failed()) attempt([&] { checker_->leave(); });
    attempt(leave_control);
    if (!job_state_->failed()) attempt([&] { queue_->rethrow_dropped_error(); });
    attempt([&] { transport_->leave(); });
}

}  // namespace DPTK_NAMESPACE::detail
