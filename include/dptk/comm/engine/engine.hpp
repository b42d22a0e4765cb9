/// Engine: what is below communicators and ProcessGroup. It executes the calls of one group on its transport,
/// in order: see the picture in docs/design.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/comm/allocation.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/engine/engine_owner.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

class StreamTransport;
struct InitOptions;

namespace detail {

class CallChecker;
class CallerState;
class DeviceEngines;
class EnqueuedCalls;
class JobState;
class StartedCalls;
class WorkQueue;
struct DeviceCall;

/// Returns the transport's control plane, or creates one if the transport has none: see Engine::open().
[[nodiscard]] std::shared_ptr<ControlPlane> control_of(const Transport& transport,
                                                       const InitOptions& options);

/// Checks who calls, tracks the call for the control plane, and executes it on the transport: on the calling
/// thread, on a background thread, or while the caller waits. Calls on device memory are executed by an
/// engine of their own. Errors that the ranks have not agreed on fail the job.
class Engine {
  public:
    /// Opens the engine of a new job. If the transport has no control plane, and the options name a store or
    /// an init method, the processes report failures to each other through it: collective then, and blocks as
    /// init_process_group() does. Throws ArgumentError if the options contradict the transport.
    [[nodiscard]] static EngineOwner open(std::unique_ptr<Transport> transport, const InitOptions& options);
    [[nodiscard]] static EngineOwner open(std::unique_ptr<Transport> transport);

    /// Opens an engine in a job that already has one, over the same or another transport. Pass the progress()
    /// of that engine.
    [[nodiscard]] static EngineOwner open(std::unique_ptr<Transport> transport,
                                          std::shared_ptr<ControlPlane> control, ChannelIdentity identity,
                                          std::function<bool()> progress = nullptr);

    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine();

    [[nodiscard]] int rank() const { return transport_->rank(); }
    [[nodiscard]] int size() const { return transport_->size(); }
    [[nodiscard]] int local_rank() const { return transport_->local_rank(); }
    [[nodiscard]] int local_size() const { return transport_->local_size(); }
    [[nodiscard]] std::string backend() const { return std::string(transport_->backend()); }

    /// Lets an engine of their own, which is connected at the first such call, execute the calls on device
    /// memory.
    void use_devices() { uses_devices_ = !can_.device_memory; }

    /// Sets what the calls that follow are for, for messages.
    void set_purpose(const CallPurpose& purpose);

    /// Returns whether this thread may make calls: some libraries allow only the main thread (MPI thread
    /// level FUNNELED).
    [[nodiscard]] bool callable_from_this_thread() const { return transport_->callable_from_this_thread(); }

    /// Returns whether only the caller's thread may communicate. Started operations then progress only while
    /// the caller waits.
    [[nodiscard]] bool progresses_by_caller() const { return can_.progresses_by_caller; }

    /// Returns whether background calls on host memory use the CPU cores on which the program computes, so
    /// that overlap gains nothing. The result is the same on all ranks.
    [[nodiscard]] bool competes_with_compute() const { return can_.competes_with_compute; }

    /// Returns whether the transport accesses device memory directly in this call (as a CUDA-aware MPI does).
    [[nodiscard]] bool takes_device_memory(const Collective& call) const {
        return transport_->takes_device_memory(call);
    }

    /// Executes the call, after all earlier calls that use the same memory. Blocks.
    void run(const Collective& call);

    /// Starts the call and returns at once. The operation owns `keep_alive` until it ends. For host memory,
    /// `then` is called on any thread after the operation has succeeded, and before a wait for it returns.
    [[nodiscard]] Work start(const Collective& call, std::shared_ptr<const void> keep_alive,
                             std::function<void()> then = {});

    /// Returns whether the devices of `call` are connected already. `call` is valid only if the result is the
    /// same on all ranks.
    [[nodiscard]] bool is_connected_for(const DeviceCall& call) const;

    /// Executes a call on device memory of several devices in each process. Requires that all ranks have
    /// checked their calls. Collective. Throws ArgumentError if the engine does not use devices.
    void run_on_devices(const DeviceCall& call);

    /// Sends or receives a message, and returns the peer's rank. Blocks.
    int run(const Message& message);

    /// Starts to send or receive and returns at once. The operation owns `keep_alive` until it ends.
    [[nodiscard]] Work start(const Message& message, std::shared_ptr<const void> keep_alive);

    /// Returns whether probe() is supported.
    [[nodiscard]] bool can_probe() const { return can_.probe; }

    /// Returns the first message from this rank with this tag, or any_rank and any_tag, that has been sent to
    /// this rank. Does not block. Throws ArgumentError if the transport has no probe.
    [[nodiscard]] std::optional<MessageInfo> try_probe(const Message& message);

    /// Blocks until there is such a message.
    [[nodiscard]] MessageInfo probe(const Message& message);

    /// Launches messages that were started and wait to be batched with others. Must be called before the
    /// caller waits for anything else.
    void launch_started();

    /// Opens an independent engine over the same ranks. Collective. Returns null if the transport does not
    /// support it.
    [[nodiscard]] EngineOwner duplicate();

    /// Returns whether subgroup() is supported.
    [[nodiscard]] bool has_subgroups() const { return can_.subgroup; }

    /// Opens an engine over some of the ranks, in that order; returns null on the other ranks. Collective:
    /// all ranks call it with the same `ranks`.
    [[nodiscard]] EngineOwner subgroup(std::span<const int> ranks,
                                       std::optional<std::chrono::milliseconds> timeout);

    /// Allocates zeroed memory, aligned to 64 bytes, that the transport accesses without a copy. Collective.
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes);

    /// Allocates zeroed device memory that the transport accesses without a copy, by default on the current
    /// CUDA device. Collective. Subsequent calls may use memory of this device, and of all devices that were
    /// used before. Throws ArgumentError if the engine supports only host memory.
    [[nodiscard]] DeviceMemory allocate_on_device(std::size_t bytes, std::optional<int> device = {});

    /// For `memory` in an allocation of this engine, returns, by rank, the addresses at which this process
    /// accesses the corresponding memory of every rank. Returns an empty list, on all ranks, if the processes
    /// cannot access each other's memory. Writes become visible to other ranks after a barrier.
    [[nodiscard]] std::vector<void*> peer_memory(const Buffer& memory) const {
        return transport_->peer_memory(memory);
    }

    /// Returns whether calls may use device memory.
    [[nodiscard]] bool serves_devices() const { return can_.device_memory || uses_devices_; }

    /// Executes a barrier that reports the missing ranks; see CollectiveVerbs. Collective.
    void monitored_barrier(std::chrono::milliseconds timeout);

    /// Sets the all-reduce algorithm of subsequent calls. All ranks must set the same one.
    void set_algorithm(AllReduceAlgorithm algorithm) { algorithm_ = algorithm; }

    [[nodiscard]] const ChannelIdentity& identity() const { return tracker_->identity(); }

    /// Returns the identity of the next engine that is created from this one for some of its ranks. All ranks
    /// must make these calls in the same order.
    [[nodiscard]] ChannelIdentity next_identity(std::span<const int> ranks,
                                                std::optional<std::chrono::milliseconds> timeout);

    /// Records an error that all ranks throw: see AgreedErrors.
    void note_agreed(const Error& error);

    /// Returns the control plane that all engines of this rank in a job share.
    [[nodiscard]] const std::shared_ptr<ControlPlane>& control() const { return control_; }

    /// Returns the function that progresses the operations of the first transport of this engine and its
    /// children that needs it; null if none does.
    [[nodiscard]] const std::function<bool()>& progress() const { return progress_; }

  private:
    friend struct EngineCloser;
    friend class EnqueuedCalls;

    Engine(std::unique_ptr<Transport> transport, std::shared_ptr<ControlPlane> control,
           ChannelIdentity identity, std::shared_ptr<CallerState> caller, std::function<bool()> progress);

    [[nodiscard]] static EngineOwner make(std::unique_ptr<Transport> transport,
                                          std::shared_ptr<ControlPlane> control, ChannelIdentity identity,
                                          std::shared_ptr<CallerState> caller,
                                          std::function<bool()> progress);

    void begin(const std::shared_ptr<Engine>& self);

    // Routes by device.
    [[nodiscard]] DeviceEngines& devices();
    [[nodiscard]] bool concerns_devices(const Buffer& shape) const noexcept {
        return devices_ != nullptr || (uses_devices_ && shape.on_device());
    }
    /// Returns the engine for memory like `shape`: this one or that of a device. Before a call on the host,
    /// launches the messages that were started on devices: the host may wait for a rank that waits for one of
    /// them.
    [[nodiscard]] Engine& engine_for(const Buffer& shape);

    // Checks a call.
    void check_caller(const Collective& call) const;
    void check_memory(const Collective& call) const;
    [[noreturn]] void refuse_child(const Collective& call) const;
    [[noreturn]] void refuse_second_caller(const Collective& call) const;
    [[nodiscard]] std::string no_devices_text() const;
    void begin_message(const Message& message);
    /// Throws if the transport or the job has failed. The transport's own failure takes precedence, since it
    /// is more specific.
    void throw_if_failed() const;

    // Executes a call. Operations in flight call these functions on any thread, possibly after the engine has
    // closed.
    /// Calls `operation`, in which the transport may wait for other ranks. Errors that a lost rank has caused
    /// are replaced by the job's first cause.
    template <class Operation>
    decltype(auto) in_transport(Operation&& operation) const;
    template <class Operation>
    void track(const Collective& call, Operation&& operation) const;
    /// Executes a collective that returns an object (a transport, memory), and returns that object.
    template <class Make>
    auto make_tracked(const Collective& call, Make&& make_result) const;
    void execute(const Collective& call) const;
    void run_on_caller(const Collective& call) const;
    void carry_out(const Collective& call) const;
    void run_on_copy(const Collective& call) const;
    void run_nonblocking(const Collective& call) const;
    int carry_out(const Message& message, CallTracker& messages) const;

    // Orders calls.
    [[nodiscard]] Work start_here(const Collective& call, std::shared_ptr<const void> keep_alive,
                                  std::function<void()> then);
    [[nodiscard]] std::shared_ptr<WorkState> start_on_thread(const Collective& call,
                                                             std::shared_ptr<const void> keep_alive,
                                                             std::function<void()> then);
    [[nodiscard]] std::shared_ptr<WorkState> start_by_caller(const Collective& call,
                                                             std::shared_ptr<const void> keep_alive,
                                                             std::function<void()> then);
    /// Returns whether the call is to use the group's algorithm.
    [[nodiscard]] bool needs_algorithm(const Collective& call) const noexcept {
        return call.verb == Verb::all_reduce && call.algorithm == AllReduceAlgorithm::automatic &&
               algorithm_ != AllReduceAlgorithm::automatic;
    }
    void run_with_options(const Collective& call);
    [[nodiscard]] std::function<void()> poll_check(const Collective& call) const;
    [[nodiscard]] std::shared_ptr<WorkState> tracked(std::shared_ptr<WorkState> work,
                                                     std::shared_ptr<CallTracker> tracker,
                                                     const PackedCall& call,
                                                     std::chrono::milliseconds timeout,
                                                     std::function<void()> then) const;
    /// Runs the operation after all deferred and queued operations have ended.
    template <class Operation>
    void in_order(Operation&& operation);
    void finish_earlier();

    [[nodiscard]] EngineOwner child(std::unique_ptr<Transport> transport, ChannelIdentity identity) const;

    /// Ends the engine, in an orderly shutdown, or at once if the job has failed. Logs errors.
    void end() noexcept;
    void close() noexcept;
    void leak() noexcept;

    std::shared_ptr<Engine> self_;  // until the owner closes the engine
    std::shared_ptr<ControlPlane> control_;
    std::shared_ptr<JobState> job_state_;
    std::shared_ptr<CallTracker> tracker_;
    std::unique_ptr<Transport> transport_;
    StreamTransport* stream_;  // the transport, if its calls run on a GPU stream
    TransportCapabilities can_;
    bool has_own_control_;  // that of the transport
    bool uses_devices_ = false;
    AllReduceAlgorithm algorithm_ = AllReduceAlgorithm::automatic;
    std::function<bool()> progress_;
    std::shared_ptr<CallTracker> message_tracker_;  // null before the first message
    std::shared_ptr<CallerState> caller_;
    std::shared_ptr<CallChecker> checker_;  // null unless DPTK_DEBUG=detail enables the check
    std::unique_ptr<WorkQueue> queue_;
    std::unique_ptr<StartedCalls> started_;
    std::unique_ptr<EnqueuedCalls> enqueued_;  // null unless the transport is a StreamTransport
    std::unique_ptr<DeviceEngines> devices_;   // null before the first call on device memory
    ForkGuard fork_guard_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

/// Returns a duplicate of the engine. Collective. Throws ArgumentError if its transport has no duplicate().
[[nodiscard]] EngineOwner duplicate_or_throw(Engine& engine);

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/engine/engine.ipp"
#endif
