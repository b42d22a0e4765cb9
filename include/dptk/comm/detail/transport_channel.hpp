/// Implements a channel over any transport. It adds what all transports need: background execution, error
/// propagation to the job, and an orderly shutdown, or an abort if the job has failed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/detail/active_call.hpp"
#include "dptk/comm/detail/call_checker.hpp"
#include "dptk/comm/detail/call_executor.hpp"
#include "dptk/comm/detail/channel.hpp"
#include "dptk/comm/detail/enqueued_calls.hpp"
#include "dptk/comm/detail/started_calls.hpp"
#include "dptk/comm/detail/transport_defaults.hpp"
#include "dptk/comm/detail/transport_members.hpp"
#include "dptk/comm/detail/work_queue.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/agreed_errors.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/debug.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

template <Transport T>
class TransportChannel final : public Channel {
  public:
    explicit TransportChannel(T transport) : TransportChannel(std::make_shared<T>(std::move(transport))) {}

    /// Creates a channel in a job that already has channels, over the same or another transport.
    TransportChannel(T transport, const ChannelJob& job, ChannelIdentity identity)
        : TransportChannel(std::make_shared<T>(std::move(transport)), job, std::move(identity),
                           std::make_shared<CallerState>()) {}

    ~TransportChannel() override {
        if (fork_guard_.is_in_child()) {
            leak();
            return;
        }
        const bool unwinding = std::uncaught_exceptions() > uncaught_exceptions_;
        if (unwinding && !executor_->job.agreed_errors->is_unwinding()) {
            job_state_->fail(text("rank ", executor_->job.control->rank(),
                                  " left its process group because of an exception"));
        }
        close();
    }

    [[nodiscard]] int rank() const override { return transport().rank(); }
    [[nodiscard]] int size() const override { return transport().size(); }
    [[nodiscard]] std::string backend() const override { return std::string(transport().backend()); }

    void set_purpose(const CallPurpose& purpose) override { tracker().set_purpose(purpose); }

    [[nodiscard]] int local_rank() const override {
        if constexpr (HasLocalRank<T>) return transport().local_rank();
        return 0;
    }

    [[nodiscard]] int local_size() const override {
        if constexpr (HasLocalRank<T>) return transport().local_size();
        return 1;
    }

    [[nodiscard]] bool callable_from_this_thread() const override {
        if constexpr (HasThreadRule<T>) return transport().callable_from_this_thread();
        return true;
    }

    [[nodiscard]] bool progresses_by_caller() const override {
        if constexpr (HasStart<T>) return transport().progresses_by_caller();
        return false;
    }

    [[nodiscard]] bool competes_with_compute() const override {
        if constexpr (HasCompetes<T>) return transport().competes_with_compute();
        return false;
    }

    [[nodiscard]] bool takes_device_memory(const Collective& call) const override {
        if constexpr (HasTakesDeviceMemory<T>) return transport().takes_device_memory(call);
        return false;
    }

    void run(const Collective& call) override {
        if (call.timeout.count() != 0) [[unlikely]]
            return run_with_timeout(call);
        check_caller(call);
        if (HasRethrow<T> || job_state_->failed()) executor_->throw_if_failed();
        check_memory(call);
        if constexpr (HasEnqueue<T>) return enqueued_->run(call, algorithm_);
        const ProgramWait::Scope waits(control().program(), tracker());
        break_job_unless_agreed(
            executor_->job, [&]() __attribute__((always_inline)) {
                started_.finish_before(call);
                if (queue_.idle()) {
                    executor_->run_on_caller(call, algorithm_of(call));
                } else {
                    Work(start_on_thread(call, nullptr, nullptr)).wait();
                }
            });
        if (call.verb == Verb::barrier) queue_.rethrow_dropped_error();
    }

    [[nodiscard]] Work start(const Collective& call, std::shared_ptr<const void> keep_alive,
                             std::function<void()> then) override {
        check_caller(call);
        executor_->throw_if_failed();
        check_memory(call);
        if (call.timeout.count() != 0) control().look_often(call.timeout);
        if constexpr (HasEnqueue<T>) {
            Work work = enqueued_->start(call, algorithm_, std::move(keep_alive));
            if (then) work.wait();  // does not block: `then` implies host memory, so the call has ended
            if (then) then();
            return work;
        }
        if constexpr (HasStart<T>) {
            if (transport().progresses_by_caller())
                return Work(start_by_caller(call, std::move(keep_alive), std::move(then)), job());
        }
        return Work(start_on_thread(call, std::move(keep_alive), std::move(then)), job(), executor_->tracker);
    }

    int run(const Message& message) override {
        begin_message(message);
        if constexpr (HasEnqueue<T>) {
            enqueued_->run(message);
            return message.peer;
        }
        int peer = message.peer;
        const CallTimeout limit(*message_tracker_, message.timeout);
        const auto transfer = [&] { peer = executor_->run(message, *message_tracker_); };
        if constexpr (HasStartMessage<T>) {
            abort_job_on_error(transfer);
        } else {
            in_order(transfer);
        }
        return peer;
    }

    [[nodiscard]] Work start(const Message& message, std::shared_ptr<const void> keep_alive) override {
        begin_message(message);
        if constexpr (HasEnqueue<T>) {
            return enqueued_->start(message, std::move(keep_alive));
        } else if constexpr (HasStartMessage<T>) {
            std::shared_ptr<WorkState> work;
            abort_job_on_error([&] {
                work = std::make_shared<TrackedWork>(transport().start(message), executor_->job.control,
                                                     message_tracker_, pack(message), message.timeout,
                                                     nullptr, at_failure);
            });
            started_.add(work, std::move(keep_alive));
            return Work(work, job());
        } else {
            const auto carry_out = [executor = executor_, tracker = message_tracker_,
                                    keep = std::move(keep_alive), message] {
                const CallTimeout limit(*tracker, message.timeout);
                executor->job.control->job_state()->check();
                int peer = message.peer;
                executor->abort_job_on_error([&] { peer = executor->run(message, *tracker); });
                return message.verb == Verb::recv ? peer : -1;
            };
            if (!progresses_by_caller()) return Work(queue_.start(carry_out), job());
            const auto work = std::make_shared<QueuedWork>(carry_out);
            work->run();
            return Work(work, job());
        }
    }

    void launch_started() override {
        if constexpr (HasEnqueue<T>) enqueued_->launch_messages();
    }

    [[nodiscard]] std::unique_ptr<Channel> duplicate() override {
        if constexpr (HasDuplicate<T>) {
            executor_->throw_if_failed();
            std::unique_ptr<TransportChannel> copy;
            in_order([&] {
                copy = executor_->make({.verb = Verb::duplicate}, [&] {
                    ChannelIdentity same = identity();
                    same.name += text('.', tracker().next_child());
                    return child_channel(transport().duplicate(), std::move(same));
                });
            });
            return copy;
        } else {
            return nullptr;
        }
    }

    [[nodiscard]] bool has_subgroups() const override { return HasSubgroup<T>; }

    [[nodiscard]] std::unique_ptr<Channel> subgroup(
        std::span<const int> ranks, std::optional<std::chrono::milliseconds> timeout) override {
        std::unique_ptr<TransportChannel> part;
        if constexpr (HasSubgroup<T>) {
            executor_->throw_if_failed();
            in_order([&] {
                part =
                    executor_->make({.verb = Verb::subgroup}, [&] { return make_subgroup(ranks, timeout); });
            });
        }
        return part;
    }

    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) override {
        if constexpr (HasAllocate<T>) {
            executor_->throw_if_failed();
            std::shared_ptr<void> memory;
            in_order([&] {
                memory = executor_->make(allocation_call(bytes), [&] { return transport().allocate(bytes); });
            });
            return memory;
        } else {
            return allocate_aligned(bytes);
        }
    }

    [[nodiscard]] std::vector<void*> peer_memory(const Buffer& memory) const override {
        if constexpr (HasPeerMemory<T>) return transport().peer_memory(memory);
        return {};
    }

    [[nodiscard]] DeviceMemory allocate_on_device(std::size_t bytes, std::optional<int> device) override {
        if constexpr (HasAllocateOnDevice<T>) {
            executor_->throw_if_failed();
            DeviceMemory memory;
            in_order([&] { memory = transport().allocate_on_device(bytes); });
            if (device && *device != memory.device.index)
                throw ArgumentError(text("rank ", rank(), ": cannot allocate memory on cuda:", *device,
                                         ": the transport ", backend(), " uses ",
                                         device_name(memory.device)));
            return memory;
        } else {
            throw ArgumentError(text("rank ", rank(), ": allocate_on_device: ", no_devices_text()));
        }
    }

    [[nodiscard]] bool serves_devices() const override { return ServesDevices<T>; }

    void monitored_barrier(std::chrono::milliseconds timeout) override {
        if (size() > 1 && !control().has_store()) {
            throw ArgumentError(text("rank ", rank(),
                                     ": monitored_barrier requires a control plane with a store, which the "
                                     "transport ",
                                     backend(), " does not have in this job"));
        }
        executor_->throw_if_failed();
        in_order([&] {
            with_first_cause(*job_state_, [&] {
                control().monitored_barrier(tracker(), timeout, executor_->job.progress);
            });
        });
    }

    void set_algorithm(AllReduceAlgorithm algorithm) override { algorithm_ = algorithm; }

    [[nodiscard]] const ChannelIdentity& identity() const override { return tracker().identity(); }

    [[nodiscard]] ChannelIdentity next_identity(std::span<const int> ranks,
                                                std::optional<std::chrono::milliseconds> timeout) override {
        // The subgroups that one call creates differ in their first rank, which makes their names unique. A
        // rank that is in none of these subgroups needs no name.
        const int first = ranks.empty() ? -1 : ranks.front();
        ChannelIdentity next{.name = text(identity().name, '.', tracker().next_child(), '-', first),
                             .ranks = {},
                             .timeout = timeout.value_or(identity().timeout)};
        for (const int member : ranks)
            next.ranks.push_back(identity().ranks[static_cast<std::size_t>(member)]);
        return next;
    }

    [[nodiscard]] const ChannelJob& job() const override { return executor_->job; }

  private:
    explicit TransportChannel(const std::shared_ptr<T>& transport)
        : TransportChannel(transport, {control_of(*transport), std::make_shared<AgreedErrors>()}) {}

    TransportChannel(const std::shared_ptr<T>& transport, const ChannelJob& job)
        : TransportChannel(
              transport, job,
              ChannelIdentity{.name = "0", .ranks = all_ranks(*transport), .timeout = job.control->timeout()},
              std::make_shared<CallerState>()) {}

    TransportChannel(std::shared_ptr<T> transport, const ChannelJob& job, ChannelIdentity identity,
                     std::shared_ptr<CallerState> caller)
        : executor_(std::make_shared<CallExecutor<T>>(
              CallExecutor<T>{std::move(transport), job,
                              std::make_shared<CallTracker>(std::move(identity),
                                                            CallTracker::Calls::collectives, call_reader),
                              nullptr})),
          tracker_(executor_->tracker.get()),
          job_state_(job.control->job_state()),
          caller_(std::move(caller)) {
        if constexpr (HasProgress<T>) {
            if (!executor_->job.progress) executor_->job.progress = progress_of(executor_->transport);
        }
        if (size() > 1 && control().has_store() && debug_level() == DebugLevel::detail)
            executor_->checker = std::make_shared<CallChecker>(job.control, executor_->tracker, caller_,
                                                               executor_->job.progress);
        if constexpr (HasEnqueue<T>) enqueued_ = std::make_unique<EnqueuedCalls<T>>(executor_);
        control().open(executor_->tracker);  // last, since close() must follow
    }

    [[nodiscard]] std::unique_ptr<TransportChannel> child_channel(T transport,
                                                                  ChannelIdentity identity) const {
        std::unique_ptr<TransportChannel> child(new TransportChannel(
            std::make_shared<T>(std::move(transport)), job(), std::move(identity), caller_));
        child->algorithm_ = algorithm_;
        return child;
    }

    [[nodiscard]] std::unique_ptr<TransportChannel> make_subgroup(
        std::span<const int> ranks, std::optional<std::chrono::milliseconds> timeout) {
        ChannelIdentity part = next_identity(ranks, timeout);
        if (std::ranges::find(ranks, rank()) == ranks.end()) return nullptr;
        T transport_of_part = transport().subgroup(ranks, part.name);
        return child_channel(std::move(transport_of_part), std::move(part));
    }

    [[nodiscard]] static std::vector<int> all_ranks(const T& transport) {
        std::vector<int> ranks(static_cast<std::size_t>(transport.size()));
        std::iota(ranks.begin(), ranks.end(), 0);
        return ranks;
    }

    /// Holds the transport weakly, since groups over other transports may outlive it.
    [[nodiscard]] static Progress progress_of(const std::weak_ptr<T>& transport) {
        return [transport] {
            const std::shared_ptr<T> here = transport.lock();
            return here && here->progress();
        };
    }

    [[nodiscard]] T& transport() const noexcept { return *executor_->transport; }

    void run_with_timeout(const Collective& call) {
        control().look_often(call.timeout);
        const CallTimeout limit(tracker(), call.timeout);
        Collective without = call;
        without.timeout = {};
        run(without);
    }

    [[nodiscard]] AllReduceAlgorithm algorithm_of(const Collective& call) const noexcept {
        return call.algorithm != AllReduceAlgorithm::automatic ? call.algorithm : algorithm_;
    }

    [[nodiscard]] CallTracker& tracker() const noexcept { return *tracker_; }

    void check_memory(const Collective& call) const {
        if constexpr (ServesDevices<T>) return;
        if (call.input.on_device() || call.output.on_device()) check_device_memory(call);
    }

    void check_device_memory(const Collective& call) const {
        if (takes_device_memory(call)) return;
        throw ArgumentError(text("rank ", rank(), ": ", describe(call), " on a device: ", no_devices_text()));
    }

    [[nodiscard]] std::string no_devices_text() const {
        return "the transport " + backend() +
               " supports only host memory. For device memory, use a ProcessGroup in a program that "
               "includes <dptk/comm/nccl.hpp> or <dptk/comm/staged.hpp>";
    }

    /// Throws ArgumentError in a forked child, or if another thread is in a call of this channel.
    void check_caller(const Collective& call) const {
        if (fork_guard_.is_in_child()) refuse_child(call);
        if constexpr (HasEnqueue<T>) return;  // calls stay active on their stream
        const std::optional<std::uint64_t> active = tracker().active_call();
        // If the background thread executed this call, the queue would not be idle while the call is active.
        if (active && queue_.idle() && tracker().active_call() == active) refuse_second_caller(call);
    }

    [[noreturn]] void refuse_child(const Collective& call) const {
        throw ArgumentError(text(describe(call), " was called in a process that was forked from rank ",
                                 rank(), ": only the rank itself may call its groups"));
    }

    [[noreturn]] void refuse_second_caller(const Collective& call) const {
        throw ArgumentError(text("rank ", rank(), ": ", describe(call),
                                 " was called while another thread is in ",
                                 tracker().describe(tracker().look()),
                                 " of the same group: call a group from one thread at a time, or give each "
                                 "thread a group of its own"));
    }

    template <class Operation>
    void abort_job_on_error(Operation&& operation) {
        executor_->abort_job_on_error(operation);
    }

    /// Runs the operation after all deferred and queued operations have ended. Fails the job if an error is
    /// not agreed between the ranks.
    template <class Operation>
    void in_order(Operation&& operation) {
        check_caller({.verb = Verb::duplicate});
        launch_started();
        abort_job_on_error([&] {
            started_.finish_before({.verb = Verb::duplicate});
            if (!queue_.idle()) queue_.start([] { return -1; })->wait(std::chrono::nanoseconds::max());
            operation();
        });
    }

    std::shared_ptr<WorkState> start_on_thread(const Collective& call, std::shared_ptr<const void> keep_alive,
                                               std::function<void()> then) {
        if (executor_->checker) executor_->checker->announce();
        std::function<void()> prepared;
        abort_job_on_error([&] { prepared = executor_->prepare(call, algorithm_of(call)); });
        std::shared_ptr<WorkState> work =
            queue_.start([executor = executor_, keep = std::move(keep_alive), then = std::move(then), call,
                          algorithm = algorithm_of(call), operation = std::move(prepared)] {
                const CallTimeout limit(*executor->tracker, call.timeout);
                executor->job.control->job_state()->check();
                executor->abort_job_on_error([&] { executor->run(call, algorithm, operation); });
                if (then) then();
                return -1;
            });
        if (!executor_->checker) return work;
        return std::make_shared<CheckedWork>(std::move(work), executor_->checker);
    }

    /// Starts a call that the transport progresses while the caller waits. A call that the transport cannot
    /// start is deferred: it is executed when the caller waits for it.
    std::shared_ptr<WorkState> start_by_caller(const Collective& call, std::shared_ptr<const void> keep_alive,
                                               std::function<void()> then) {
        if constexpr (HasStart<T>) {
            std::shared_ptr<WorkState> work;
            const bool chosen =
                call.verb == Verb::all_reduce && algorithm_of(call) != AllReduceAlgorithm::automatic;
            const bool nonblocking = !chosen && !executor_->checker;
            if (nonblocking && !started_.has_deferred()) {
                abort_job_on_error([&] {
                    started_.finish_before(call);
                    work = transport().start(call);
                    if (work) const ActiveCall counted(tracker(), call);
                });
            }
            if (work) {
                work = std::make_shared<TrackedWork>(std::move(work), executor_->job.control,
                                                     executor_->tracker, PackedCall(call), call.timeout,
                                                     std::move(then), at_failure);
                started_.add(call, work, std::move(keep_alive));
                return work;
            }
            const auto carry_out = [executor = executor_, then = std::move(then), call, nonblocking,
                                    algorithm = algorithm_of(call)] {
                const CallTimeout limit(*executor->tracker, call.timeout);
                executor->job.control->job_state()->check();
                executor->abort_job_on_error([&] {
                    if (nonblocking) {
                        executor->run_nonblocking(call);
                    } else {
                        executor->run_on_caller(call, algorithm);
                    }
                });
                if (then) then();
            };
            return started_.defer(call, carry_out, poll_check(call), std::move(keep_alive));
        } else {
            return nullptr;
        }
    }

    /// Returns the function that a deferred call runs at each poll. It throws if the job has failed, and
    /// fails the job if the first poll was longer ago than the timeout of a call.
    [[nodiscard]] std::function<void()> poll_check(const Collective& call) const {
        const std::chrono::milliseconds own = call.timeout;
        return [state = job_state_, timeout = own.count() != 0 ? own : identity().timeout,
                call = PackedCall(call), rank = executor_->job.control->rank(),
                deadline = std::optional<Deadline>()]() mutable {
            if (!deadline) deadline.emplace(timeout);
            if (deadline->passed())
                state->fail(text("rank ", rank, ": ", call.describe(), " has been polled for ",
                                 duration_text(timeout),
                                 ", but polling does not run it: call Work::wait() without a timeout"),
                            Failure::deadline);
            state->check();
        };
    }

    /// Throws ArgumentError if the message is invalid. Creates the message tracker at the first message.
    void begin_message(const Message& message) {
        if (fork_guard_.is_in_child()) refuse_child({});
        executor_->throw_if_failed();
        if (message.timeout.count() != 0) control().look_often(message.timeout);
        const auto refuse = [&](std::string_view why) {
            throw ArgumentError(text("rank ", rank(), ": ", pack(message).describe(), ": ", why));
        };
        const bool from_any = message.verb == Verb::recv && message.peer == any_rank;
        if (from_any && !HasRecvAny<T>) refuse("the transport " + backend() + " has no recv_any");
        if (!from_any && (message.peer < 0 || message.peer >= size()))
            refuse(text("peer ", message.peer, " is outside [0, ", size() - 1, "]"));
        if (message.peer == rank()) refuse("a rank cannot send to or receive from itself");
        if (from_any && size() == 1) refuse("expected at least 2 ranks, got 1");
        if (message.tag < 0 || message.tag > max_tag)
            refuse(text("tag ", message.tag, " is outside [0, ", max_tag, "]"));
        if (message_tracker_) return;
        ChannelIdentity messages_identity = identity();
        messages_identity.name += "/messages";
        message_tracker_ = std::make_shared<CallTracker>(std::move(messages_identity),
                                                         CallTracker::Calls::messages, call_reader);
        control().open(message_tracker_);
        if constexpr (HasEnqueue<T>) enqueued_->open_messages(message_tracker_);
    }

    /// Leaks what belongs to the parent process: its threads do not exist here, and its connections are in
    /// use.
    void leak() noexcept {
        queue_.leak();
        keep_for_ever(std::move(started_));
        keep_for_ever(std::move(enqueued_));
        keep_for_ever(executor_);
        keep_for_ever(message_tracker_);
    }

    void close() noexcept {
        const auto attempt = [&](auto&& step) {
            try {
                step();
            } catch (const std::exception& failure) {
                log(LogLevel::error, executor_->job.control->rank(),
                    text("while a process group closed: ", failure.what()));
            } catch (...) {
                log(LogLevel::error, executor_->job.control->rank(),
                    "while a process group closed: an exception that is not derived from std::exception");
            }
        };
        const auto leave_control = [&] {
            if (message_tracker_) control().close(message_tracker_);
            control().close(executor_->tracker);
        };
        if (!job_state_->failed()) attempt([&] { started_.finish_all(); });
        if (job_state_->failed() && !Interruptible<T>) {
            // Operations in flight cannot be stopped, and continue to use their memory.
            queue_.abandon();
            started_.abandon();
            return attempt(leave_control);
        }
        attempt([&] { queue_.finish(); });
        if (job_state_->failed()) attempt([&] { started_.await_end(); });
        if constexpr (HasEnqueue<T>) attempt([&] { enqueued_->finish(); });
        if constexpr (HasClose<T>) attempt([&] { transport().close(); });
        if (executor_->checker && !job_state_->failed()) attempt([&] { executor_->checker->leave(); });
        attempt(leave_control);
        if (!job_state_->failed()) attempt([&] { queue_.rethrow_dropped_error(); });
        if constexpr (HasLeave<T>) attempt([&] { transport().leave(); });
    }

    static constexpr auto at_failure =
        Interruptible<T> ? TrackedWork::AtFailure::ends : TrackedWork::AtFailure::continues;

    std::shared_ptr<CallExecutor<T>> executor_;
    CallTracker* tracker_;  // owned by executor_
    std::shared_ptr<JobState> job_state_;
    std::shared_ptr<CallerState> caller_;
    std::shared_ptr<CallTracker> message_tracker_;
    AllReduceAlgorithm algorithm_ = AllReduceAlgorithm::automatic;
    ForkGuard fork_guard_;
    WorkQueue queue_;
    StartedCalls started_;
    /// Null unless the transport enqueues its calls on a GPU.
    std::unique_ptr<EnqueuedCalls<T>> enqueued_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace DPTK_NAMESPACE::detail
