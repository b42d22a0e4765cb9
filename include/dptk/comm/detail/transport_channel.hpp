/// Implements a channel over any transport: translates each call into the functions that the transport has.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/detail/active_call.hpp"
#include "dptk/comm/detail/backoff.hpp"
#include "dptk/comm/detail/call_checker.hpp"
#include "dptk/comm/detail/call_executor.hpp"
#include "dptk/comm/detail/channel_base.hpp"
#include "dptk/comm/detail/enqueued_calls.hpp"
#include "dptk/comm/detail/transport_defaults.hpp"
#include "dptk/comm/detail/transport_members.hpp"
#include "dptk/comm/detail/work_queue.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/agreed_errors.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

template <Transport T>
class TransportChannel final : public ChannelBase {
  public:
    explicit TransportChannel(T transport, const InitOptions& options = {})
        : TransportChannel(std::make_shared<T>(std::move(transport)), options) {}

    /// Creates a channel in a job that already has channels, over the same or another transport.
    TransportChannel(T transport, const ChannelJob& job, ChannelIdentity identity)
        : TransportChannel(std::make_shared<T>(std::move(transport)), job, std::move(identity),
                           std::make_shared<CallerState>()) {}

    ~TransportChannel() override { end(); }

    [[nodiscard]] int rank() const override { return transport().rank(); }
    [[nodiscard]] int size() const override { return transport().size(); }
    [[nodiscard]] std::string backend() const override { return std::string(transport().backend()); }

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
        if (HasRethrow<T> || job_state()->failed()) [[unlikely]]
            executor_->throw_if_failed();
        check_memory(call);
        if constexpr (HasEnqueue<T>) return enqueued_->run(call, algorithm());
        const ProgramWait::Scope waits(control().program(), tracker());
        break_job_unless_agreed(
            executor_->job, [&]() __attribute__((always_inline)) {
                started().finish_before(call);
                if (queue().idle()) [[likely]] {
                    executor_->run_on_caller(call, algorithm_of(call));
                } else {
                    Work(start_prepared(call, nullptr, nullptr)).wait();
                }
            });
        if (call.verb == Verb::barrier) [[unlikely]]
            queue().rethrow_dropped_error();
    }

    [[nodiscard]] Work start(const Collective& call, std::shared_ptr<const void> keep_alive,
                             std::function<void()> then) override {
        check_caller(call);
        executor_->throw_if_failed();
        check_memory(call);
        if (call.timeout.count() != 0) control().look_often(call.timeout);
        if constexpr (HasEnqueue<T>) {
            Work work = enqueued_->start(call, algorithm(), std::move(keep_alive));
            if (then) work.wait();  // does not block: `then` implies host memory, so the call has ended
            if (then) then();
            return work;
        }
        if constexpr (HasStart<T>) {
            if (transport().progresses_by_caller())
                return Work(start_by_caller(call, std::move(keep_alive), std::move(then)), job());
        }
        return Work(start_prepared(call, std::move(keep_alive), std::move(then)), job(), executor_->tracker);
    }

    int run(const Message& message) override {
        open_message(message);
        if constexpr (HasEnqueue<T>) {
            enqueued_->run(message);
            return message.peer;
        }
        int peer = message.peer;
        const CallTimeout limit(*message_tracker(), message.timeout);
        const auto transfer = [&] { peer = executor_->run(message, *message_tracker()); };
        if constexpr (HasStartMessage<T>) {
            abort_job_on_error(transfer);
        } else {
            in_order(transfer);
        }
        return peer;
    }

    [[nodiscard]] Work start(const Message& message, std::shared_ptr<const void> keep_alive) override {
        open_message(message);
        if constexpr (HasEnqueue<T>) {
            return enqueued_->start(message, std::move(keep_alive));
        } else if constexpr (HasStartMessage<T>) {
            std::shared_ptr<WorkState> work;
            abort_job_on_error([&] {
                const CallWaits waits(*job_state());
                work = make_pooled<TrackedWork>(transport().start(message), executor_->job.control,
                                                message_tracker(), pack(message), message.timeout, nullptr,
                                                at_failure);
            });
            started().add(work, std::move(keep_alive));
            return Work(work, job());
        } else {
            const auto carry_out = [executor = executor_, tracker = message_tracker(),
                                    keep = std::move(keep_alive), message] {
                const CallTimeout limit(*tracker, message.timeout);
                executor->job.control->job_state()->check();
                int peer = message.peer;
                executor->abort_job_on_error([&] { peer = executor->run(message, *tracker); });
                return message.verb == Verb::recv ? peer : -1;
            };
            if (!progresses_by_caller()) return Work(queue().start(carry_out), job());
            const auto work = make_operation(carry_out);
            work->run();
            return Work(work, job());
        }
    }

    [[nodiscard]] bool can_probe() const override { return HasProbe<T>; }

    [[nodiscard]] std::optional<MessageInfo> try_probe(const Message& message) override {
        open_message(message);
        std::optional<MessageInfo> found;
        if constexpr (HasProbe<T>)
            abort_job_on_error([&] { found = transport().probe(message.peer, message.tag); });
        return found;
    }

    [[nodiscard]] MessageInfo probe(const Message& message) override {
        open_message(message);
        std::optional<MessageInfo> found;
        if constexpr (HasProbe<T>) {
            const CallTimeout limit(*message_tracker(), message.timeout);
            const ActiveCall active(*message_tracker(), message);
            abort_job_on_error([&] {
                for (Backoff pause; !found; pause()) {
                    job_state()->check();
                    found = transport().probe(message.peer, message.tag);
                }
            });
        }
        return *found;  // begin_message() throws if the transport has no probe
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

  private:
    TransportChannel(const std::shared_ptr<T>& transport, const InitOptions& options)
        : TransportChannel(transport,
                           ChannelJob{control_of(*transport, options), std::make_shared<AgreedErrors>()}) {}

    TransportChannel(const std::shared_ptr<T>& transport, const ChannelJob& job)
        : TransportChannel(
              transport, job,
              ChannelIdentity{.name = "0", .ranks = all_ranks(*transport), .timeout = job.control->timeout()},
              std::make_shared<CallerState>()) {}

    TransportChannel(std::shared_ptr<T> transport, const ChannelJob& job, ChannelIdentity identity,
                     std::shared_ptr<CallerState> caller)
        : TransportChannel(std::make_shared<CallExecutor<T>>(
                               std::move(transport), job,
                               std::make_shared<CallTracker>(std::move(identity),
                                                             CallTracker::Calls::collectives, call_reader)),
                           std::move(caller)) {}

    TransportChannel(const std::shared_ptr<CallExecutor<T>>& executor, std::shared_ptr<CallerState> caller)
        : ChannelBase(executor, std::move(caller),
                      {.enqueues = HasEnqueue<T>,
                       .receives_from_any = HasRecvAny<T>,
                       .is_interruptible = Interruptible<T>}),
          executor_(executor) {
        if constexpr (HasProgress<T>) {
            if (!executor_->job.progress) executor_->job.progress = progress_of(executor_->transport);
        }
        if constexpr (HasEnqueue<T>) enqueued_ = std::make_unique<EnqueuedCalls<T>>(executor_);
        open();
    }

    [[nodiscard]] std::unique_ptr<TransportChannel> child_channel(T transport,
                                                                  ChannelIdentity identity) const {
        std::unique_ptr<TransportChannel> child(new TransportChannel(
            std::make_shared<T>(std::move(transport)), job(), std::move(identity), caller()));
        child->set_algorithm(algorithm());
        return child;
    }

    [[nodiscard]] std::unique_ptr<TransportChannel> make_subgroup(
        std::span<const int> ranks, std::optional<std::chrono::milliseconds> timeout) {
        ChannelIdentity part = next_identity(ranks, timeout);
        if (!detail::contains(ranks, rank())) return nullptr;
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

    void check_memory(const Collective& call) const {
        if constexpr (ServesDevices<T>) return;
        if (call.input.on_device() || call.output.on_device()) [[unlikely]]
            check_device_memory(call);
    }

    void open_message(const Message& message) {
        const bool is_first = begin_message(message);
        if constexpr (HasEnqueue<T>) {
            if (is_first) enqueued_->open_messages(message_tracker());
        }
    }

    std::shared_ptr<WorkState> start_prepared(const Collective& call, std::shared_ptr<const void> keep_alive,
                                              std::function<void()> then) {
        if (executor_->checker) executor_->checker->announce();
        std::function<void()> prepared;
        abort_job_on_error([&] { prepared = executor_->prepare(call); });
        return start_on_thread(call, std::move(prepared), std::move(keep_alive), std::move(then));
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
            if (nonblocking && !started().has_deferred()) {
                abort_job_on_error([&] {
                    started().finish_before(call);
                    work = transport().start(call);
                    if (work) const ActiveCall counted(tracker(), call);
                });
            }
            if (work) {
                work = make_pooled<TrackedWork>(std::move(work), executor_->job.control, executor_->tracker,
                                                PackedCall(call), call.timeout, std::move(then), at_failure);
                started().add(call, work, std::move(keep_alive));
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
            return started().defer(call, carry_out, poll_check(call), std::move(keep_alive));
        } else {
            return nullptr;
        }
    }

    void finish_enqueued() override {
        if constexpr (HasEnqueue<T>) enqueued_->finish();
    }

    void close_transport() override {
        if constexpr (HasClose<T>) transport().close();
    }

    void leave_transport() override {
        if constexpr (HasLeave<T>) transport().leave();
    }

    void keep_transport() noexcept override { keep_for_ever(std::move(enqueued_)); }

    static constexpr auto at_failure =
        Interruptible<T> ? TrackedWork::AtFailure::ends : TrackedWork::AtFailure::continues;

    std::shared_ptr<CallExecutor<T>> executor_;
    /// Null unless the transport enqueues its calls on a GPU.
    std::unique_ptr<EnqueuedCalls<T>> enqueued_;
};

}  // namespace DPTK_NAMESPACE::detail
