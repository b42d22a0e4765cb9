/// A channel carries the calls of one group, one after the other: the erased engine below communicators and
/// ProcessGroup. comm/detail/transport_channel.hpp makes one from any transport.
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
#include "dptk/comm/work.hpp"
#include "dptk/control/health/agreed_errors.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// What all channels of one rank's job share.
struct ChannelJob {
    std::shared_ptr<ControlPlane> control;
    /// An agreed error that unwinds past a channel is no failure.
    std::shared_ptr<AgreedErrors> agreed_errors;
    /// Of the job's first transport, where that needs it.
    Progress progress = nullptr;
};

/// The same with a channel's job.
template <class Fn>
void break_job_unless_agreed(const ChannelJob& job, Fn&& fn) {
    break_job_unless_agreed(*job.control->job_state(), *job.agreed_errors, job.control->rank(),
                            std::forward<Fn>(fn));
}

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

    /// Whether this thread may make calls at all; some libraries allow only the main thread.
    [[nodiscard]] virtual bool callable_from_this_thread() const = 0;

    /// Whether no thread but the caller's may communicate: what was started goes on when somebody waits.
    [[nodiscard]] virtual bool progresses_by_caller() const { return false; }

    /// Whether calls on host memory that go on in the background take the processors on which the program
    /// computes, so that nothing is gained by it. The same on all ranks.
    [[nodiscard]] virtual bool competes_with_compute() const { return false; }

    /// Whether the transport reads and writes the memory of devices itself, in this call.
    [[nodiscard]] DPTK_INLINE virtual bool takes_device_memory(const Collective& call) const;

    /// Carries the call out on this thread, behind those that were started before. Blocks.
    virtual void run(const Collective& call) = 0;

    /// Starts the call and returns at once. `keep_alive` lives as long as the operation. On host memory
    /// `then` is called when it has ended well, on whatever thread, before anybody's wait for it returns.
    [[nodiscard]] virtual Work start(const Collective& call, std::shared_ptr<const void> keep_alive,
                                     std::function<void()> then = {}) = 0;

    /// Whether the devices of the call are connected already. The same on all ranks, or the call cannot be.
    [[nodiscard]] DPTK_INLINE virtual bool is_connected_for(const DeviceCall& call) const;

    /// Carries out a call over several devices in each process, in their memory; all ranks have checked
    /// theirs. Collective. Throws ArgumentError where the channel serves no several devices.
    DPTK_INLINE virtual void run_on_devices(const DeviceCall& call);

    /// Sends or receives on this thread. Returns the other rank. Blocks.
    virtual int run(const Message& message) = 0;

    /// Starts to send or receive and returns at once. `keep_alive` lives as long as the operation.
    [[nodiscard]] virtual Work start(const Message& message, std::shared_ptr<const void> keep_alive) = 0;

    /// Hands over what was started and waits for others of its kind, before the caller waits for something
    /// else.
    virtual void launch_started() {}

    /// An independent channel over the same ranks. Collective. Null where the transport has none.
    [[nodiscard]] virtual std::unique_ptr<Channel> duplicate() = 0;

    /// Whether subgroup() can be called.
    [[nodiscard]] virtual bool has_subgroups() const = 0;

    /// A channel over some of the ranks, in that order; null on the others. All ranks of this channel call
    /// it, and know the same `ranks`. Collective.
    [[nodiscard]] virtual std::unique_ptr<Channel> subgroup(
        std::span<const int> ranks, std::optional<std::chrono::milliseconds> timeout) = 0;

    /// Zeroed memory, aligned to 64 bytes, that the transport reaches without a copy. Collective.
    [[nodiscard]] virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;

    /// The same on a CUDA device, or the current one. Collective. From then on calls may work on memory of
    /// that device, which may be one of several. Throws ArgumentError where the transport reaches host memory
    /// alone.
    [[nodiscard]] virtual DeviceMemory allocate_on_device(std::size_t bytes,
                                                          std::optional<int> device = {}) = 0;

    /// Where this process reaches all ranks' memory at that place of an allocation, its own among them; empty
    /// where it does not, on all ranks alike. What a rank writes there, others see behind a barrier.
    [[nodiscard]] DPTK_INLINE virtual std::vector<void*> peer_memory(const Buffer& memory) const;

    /// Whether calls may work on device memory.
    [[nodiscard]] virtual bool serves_devices() const = 0;

    /// A barrier that names the ranks that do not come; see CollectiveVerbs. Collective.
    virtual void monitored_barrier(std::chrono::milliseconds timeout) = 0;

    /// Of the calls that follow. The same on all ranks.
    virtual void set_algorithm(AllReduceAlgorithm algorithm) = 0;

    [[nodiscard]] virtual const ChannelIdentity& identity() const = 0;

    /// Of the next channel that is made from this one for some of its ranks. All ranks call it alike.
    [[nodiscard]] virtual ChannelIdentity next_identity(std::span<const int> ranks,
                                                        std::optional<std::chrono::milliseconds> timeout) = 0;

    [[nodiscard]] virtual const ChannelJob& job() const = 0;

    /// Shared with all channels of this rank's job.
    [[nodiscard]] ControlPlane& control() const { return *job().control; }
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/channel.ipp"
#endif
