/// Transport: the base class of a network backend. Rank, size, a name, and blocking point-to-point messages
/// are sufficient: collectives are then composed of messages, by comm/algorithms/. Everything else can be
/// overridden.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dptk/comm/allocation.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

class ControlPlane;

}  // namespace detail

/// What a transport can do beyond rank(), size(), backend(), send() and recv(). A member function that is
/// named here is only called if its capability is true. The values are the same on all ranks, and do not
/// change.
struct TransportCapabilities {
    bool recv_any = false;  ///< recv_any().
    bool probe = false;     ///< probe().
    /// start_message(). One thread may then send and receive while another one is in a collective.
    bool start_message = false;
    bool duplicate = false;  ///< duplicate().
    bool subgroup = false;   ///< subgroup().
    bool allocate = false;   ///< allocate().
    bool progress = false;   ///< progress().
    /// Calls that wait inside the transport end as soon as check_call() throws, because they wait with the
    /// functions of comm/call_wait.hpp. Otherwise a failure of the job, or a call's time limit, ends the
    /// process if a call does not return within a second.
    bool is_interruptible = false;
    /// No background thread may enter the transport. Started collectives then use start().
    bool progresses_by_caller = false;
    /// Calls in the background use the CPU cores on which the program computes, so that they are better
    /// deferred until the program waits.
    bool competes_with_compute = false;
    /// Calls may use device memory.
    bool device_memory = false;
};

/// Connects ranks. Only one thread at a time calls a transport. A call that fails throws. Messages from one
/// rank to another that have the same tag must arrive in the order in which they were sent.
class Transport {
  public:
    virtual ~Transport() = default;

    /// Returns this process's rank.
    [[nodiscard]] virtual int rank() const = 0;

    /// Returns the number of ranks.
    [[nodiscard]] virtual int size() const = 0;

    /// Returns a short name for error texts: "mpi".
    [[nodiscard]] virtual std::string_view backend() const = 0;

    /// Sends to another rank. Blocks until the buffer may be reused, possibly until it has been received.
    virtual void send(const Buffer& buffer, int to, int tag) = 0;

    /// Receives from another rank. Blocks until the message, of exactly this size, has arrived.
    virtual void recv(const Buffer& buffer, int from, int tag) = 0;

    /// Returns what the transport can do beyond this.
    [[nodiscard]] virtual TransportCapabilities capabilities() const { return {}; }

    /// Returns this rank's position among the ranks of this host.
    [[nodiscard]] virtual int local_rank() const { return 0; }

    /// Returns the number of ranks of this host.
    [[nodiscard]] virtual int local_size() const { return 1; }

    /// Returns whether the calling thread may enter the transport: some libraries only allow the main thread.
    [[nodiscard]] virtual bool callable_from_this_thread() const { return true; }

    // Collectives. Counts may exceed 2^31.

    /// Executes a collective. Blocks. All ranks must get bitwise identical results of an all_reduce. The
    /// buffers of an all_to_all do not overlap, and a sum has no weight. Here: composes the collective of
    /// messages.
    DPTK_INLINE virtual void run(const Collective& call);

    /// Called on the program's thread, before another thread executes the call. Returns a function that does
    /// so; null if that is run().
    [[nodiscard]] DPTK_INLINE virtual std::function<void()> prepare(const Collective& call);

    /// Starts a collective that progresses while a thread waits for it. Returns null if the transport cannot
    /// start this call, which is then executed when the program waits for it.
    [[nodiscard]] DPTK_INLINE virtual std::shared_ptr<WorkState> start(const Collective& call);

    /// Progresses the started operations for a short time. Returns whether any are still pending. Called now
    /// and then while the program waits for other ranks outside the transport.
    DPTK_INLINE virtual bool progress();

    // Messages.

    /// Receives from any rank. Blocks. Returns the sender.
    [[nodiscard]] DPTK_INLINE virtual int recv_any(const Buffer& buffer, int tag);

    /// Sends `out` and receives `in` at the same time. Blocks. Either `to` is `from`, or each rank sends to
    /// the next one, the last rank to rank 0. Here: calls send() and recv() in an order that does not
    /// deadlock.
    DPTK_INLINE virtual void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag);

    /// Returns the first message that has been sent to this rank, and that no recv waits for; null until one
    /// has come. `from` may be any_rank, and `tag` any_tag, which stands for the tags up to max_tag. Does not
    /// block.
    [[nodiscard]] DPTK_INLINE virtual std::optional<MessageInfo> probe(int from, int tag);

    /// Sends or receives a message. Blocks. Returns the peer's rank. Here: calls send(), recv() or
    /// recv_any().
    DPTK_INLINE virtual int transfer(const Message& message);

    /// Starts a message, which progresses by itself.
    [[nodiscard]] DPTK_INLINE virtual std::shared_ptr<WorkState> start_message(const Message& message);

    // Other groups.

    /// Returns a second, independent transport over the same ranks. Collective. Without it,
    /// DistributedDataParallel does not overlap communication with backward.
    [[nodiscard]] DPTK_INLINE virtual std::unique_ptr<Transport> duplicate();

    /// Returns an independent transport over `ranks`, in that order. Collective among `ranks`. `name` is the
    /// same on all of them, and unique among the transport's subgroups.
    [[nodiscard]] DPTK_INLINE virtual std::unique_ptr<Transport> subgroup(std::span<const int> ranks,
                                                                          std::string_view name);

    /// Notifies the other ranks that this rank closes the group. Does not block.
    virtual void leave() noexcept {}

    // Memory.

    /// Returns zeroed memory, aligned to 64 bytes, that the transport accesses without a copy. Collective.
    [[nodiscard]] DPTK_INLINE virtual std::shared_ptr<void> allocate(std::size_t bytes);

    /// Returns, by rank, the addresses at which this process accesses every rank's memory that corresponds to
    /// the buffer, which is a part of an allocation. Empty, on all ranks, if the ranks cannot access each
    /// other's memory.
    [[nodiscard]] DPTK_INLINE virtual std::vector<void*> peer_memory(const Buffer& buffer) const;

    /// Returns whether the transport can execute this call on CUDA device memory, if the call is in place,
    /// and all GPU work that writes its buffers has ended. For transports without the capability
    /// device_memory.
    [[nodiscard]] DPTK_INLINE virtual bool takes_device_memory(const Collective& call) const;

    /// Returns zeroed device memory that the transport accesses without a copy. Collective.
    [[nodiscard]] DPTK_INLINE virtual DeviceMemory allocate_on_device(std::size_t bytes);

    /// For dptk's own transports: returns the control plane over which ranks report failures to each other.
    /// Null if the communicator creates it.
    [[nodiscard]] DPTK_INLINE virtual std::shared_ptr<detail::ControlPlane> control() const;

  protected:
    // A transport may be moved or copied as its own class.
    Transport() = default;
    /// Copies nothing.
    Transport(const Transport&) = default;
    Transport(Transport&&) = default;
    /// Copies nothing.
    Transport& operator=(const Transport&) = default;
    Transport& operator=(Transport&&) = default;
};

namespace detail {

/// Allocates zeroed memory, aligned to 64 bytes.
[[nodiscard]] std::shared_ptr<void> allocate_aligned(std::size_t bytes);

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/transport.ipp"
#endif
