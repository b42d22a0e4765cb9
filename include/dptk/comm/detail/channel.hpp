/// The type-erased interface below communicators and ProcessGroup: a channel executes the calls of one
/// group in order. comm/detail/transport_channel.hpp implements it for any transport.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/comm/allocation.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/channel_job.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/agreed_errors.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct DeviceCall;

class Channel {
  public:
    Channel() = default;
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    virtual ~Channel() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    [[nodiscard]] virtual int local_rank() const = 0;
    [[nodiscard]] virtual int local_size() const = 0;
    [[nodiscard]] virtual std::string backend() const = 0;

    /// Sets what the calls that follow are for, for messages.
    virtual void set_purpose(const CallPurpose& purpose) = 0;

    /// Returns whether this thread may make calls: some libraries allow only the main thread (MPI thread
    /// level FUNNELED).
    [[nodiscard]] virtual bool callable_from_this_thread() const = 0;

    /// Returns whether only the caller's thread may communicate. Started operations then progress only
    /// while the caller waits.
    [[nodiscard]] virtual bool progresses_by_caller() const { return false; }

    /// Returns whether background calls on host memory use the CPU cores on which the program computes, so
    /// that overlap gains nothing. The result is the same on all ranks.
    [[nodiscard]] virtual bool competes_with_compute() const { return false; }

    /// Returns whether the transport accesses device memory directly in this call (as a CUDA-aware MPI
    /// does).
    [[nodiscard]] DPTK_INLINE virtual bool takes_device_memory(const Collective& call) const;

    /// Executes the call, after all earlier calls that use the same memory. Blocks.
    virtual void run(const Collective& call) = 0;

    /// Starts the call and returns at once. The operation owns `keep_alive` until it ends. For host memory,
    /// `then` is called on any thread after the operation has succeeded, and before a wait for it returns.
    [[nodiscard]] virtual Work start(const Collective& call, std::shared_ptr<const void> keep_alive,
                                     std::function<void()> then = {}) = 0;

    /// Returns whether the devices of `call` are connected already. `call` is valid only if the result is the
    /// same on all ranks.
    [[nodiscard]] DPTK_INLINE virtual bool is_connected_for(const DeviceCall& call) const;

    /// Executes a call on device memory of several devices in each process. Requires that all ranks have
    /// checked their calls. Collective. Throws ArgumentError if the channel does not support several devices.
    DPTK_INLINE virtual void run_on_devices(const DeviceCall& call);

    /// Sends or receives a message, and returns the peer's rank. Blocks.
    virtual int run(const Message& message) = 0;

    /// Starts to send or receive and returns at once. The operation owns `keep_alive` until it ends.
    [[nodiscard]] virtual Work start(const Message& message, std::shared_ptr<const void> keep_alive) = 0;

    /// Returns whether probe() is supported.
    [[nodiscard]] virtual bool can_probe() const { return false; }

    /// Returns the first message from this rank with this tag, or any_rank and any_tag, that has been sent to
    /// this rank. Does not block. Throws ArgumentError if the transport has no probe.
    [[nodiscard]] virtual std::optional<MessageInfo> try_probe(const Message& message) = 0;

    /// Blocks until there is such a message.
    [[nodiscard]] virtual MessageInfo probe(const Message& message) = 0;

    /// Launches messages that were started and wait to be batched with others. Must be called before the
    /// caller waits for anything else.
    virtual void launch_started() {}

    /// Creates an independent channel over the same ranks. Collective. Returns null if the transport does
    /// not support it.
    [[nodiscard]] virtual std::unique_ptr<Channel> duplicate() = 0;

    /// Returns whether subgroup() is supported.
    [[nodiscard]] virtual bool has_subgroups() const = 0;

    /// Creates a channel over some of the ranks, in that order; returns null on the other ranks.
    /// Collective: all ranks of this channel call it with the same `ranks`.
    [[nodiscard]] virtual std::unique_ptr<Channel> subgroup(
        std::span<const int> ranks, std::optional<std::chrono::milliseconds> timeout) = 0;

    /// Allocates zeroed memory, aligned to 64 bytes, that the transport accesses without a copy.
    /// Collective.
    [[nodiscard]] virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;

    /// Allocates zeroed device memory that the transport accesses without a copy, by default on the current
    /// CUDA device. Collective. Subsequent calls may use memory of this device, and of all devices that were
    /// used before. Throws ArgumentError if the transport supports only host memory.
    [[nodiscard]] virtual DeviceMemory allocate_on_device(std::size_t bytes,
                                                          std::optional<int> device = {}) = 0;

    /// For `memory` in an allocation of this channel, returns, by rank, the addresses at which this process
    /// accesses the corresponding memory of every rank. Returns an empty list, on all ranks, if the processes
    /// cannot access each other's memory. Writes become visible to other ranks after a barrier.
    [[nodiscard]] DPTK_INLINE virtual std::vector<void*> peer_memory(const Buffer& memory) const;

    /// Returns whether calls may use device memory.
    [[nodiscard]] virtual bool serves_devices() const = 0;

    /// Executes a barrier that reports the missing ranks; see CollectiveVerbs. Collective.
    virtual void monitored_barrier(std::chrono::milliseconds timeout) = 0;

    /// Sets the all-reduce algorithm of subsequent calls. All ranks must set the same one.
    virtual void set_algorithm(AllReduceAlgorithm algorithm) = 0;

    [[nodiscard]] virtual const ChannelIdentity& identity() const = 0;

    /// Returns the identity of the next channel that is created from this one for some of its ranks. All
    /// ranks must make these calls in the same order.
    [[nodiscard]] virtual ChannelIdentity next_identity(std::span<const int> ranks,
                                                        std::optional<std::chrono::milliseconds> timeout) = 0;

    [[nodiscard]] virtual const ChannelJob& job() const = 0;

    /// Returns the control plane that all channels of this rank share.
    [[nodiscard]] ControlPlane& control() const { return *job().control; }
};

/// Sets the purpose of a channel's calls as long as the scope exists, or until the next purpose is set.
class PurposeScope {
  public:
    enum class End { resets, keeps };

    PurposeScope(Channel& channel, const CallPurpose& purpose, End end = End::resets)
        : channel_(end == End::resets ? &channel : nullptr) {
        channel.set_purpose(purpose);
    }
    ~PurposeScope() {
        if (channel_ != nullptr) channel_->set_purpose({});
    }
    PurposeScope(const PurposeScope&) = delete;
    PurposeScope& operator=(const PurposeScope&) = delete;

  private:
    Channel* channel_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/channel.ipp"
#endif
