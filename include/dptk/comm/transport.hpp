/// The Transport concept: the interface that a custom network backend implements. Rank, size, a name, and
/// blocking point-to-point messages are sufficient. Every other verb is used if the transport has it, and
/// otherwise composed of send and recv by comm/algorithms/run.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/comm/allocation.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

// clang-format off
/// A type that connects ranks: the interface of a custom network backend. It has required and optional
/// members.
///
/// Required:
///   rank(), size()             this process's rank, and the number of ranks
///   backend()                  a short name for error texts: "mpi"
///   send(buffer, to, tag)      blocks until the buffer may be reused, possibly until it has been received
///   recv(buffer, from, tag)    blocks until the message, of exactly this size, has arrived
/// A call that fails throws. Only one thread at a time calls a transport. Messages from one rank to another
/// that have the same tag must arrive in the order in which they were sent.
///
/// Optional members, which are used if they are present, and must support counts above 2^31:
///   all_reduce(Buffer, Reduction)                   in place; all ranks must get bitwise identical results
///   reduce(Buffer, Reduction, root)                 in place on the root; other ranks' memory is unchanged
///   broadcast(Buffer, root)
///   all_gather(Buffer in, Buffer out)               the smaller buffer may be this rank's part of the
///                              larger one; this also holds for the next four verbs
///   all_gather_uneven(Buffer in, Buffer out, std::span<const std::size_t> counts)
///   gather(Buffer in, Buffer out, root), scatter(Buffer in, Buffer out, root)
///   reduce_scatter(Buffer in, Buffer out, Reduction)
///   all_to_all(Buffer in, Buffer out)               the two buffers do not overlap
///   barrier()
///   static reduces(DType, Reduction)                returns whether the three reducing verbs above support
///                              this dtype and reduction. Without reduces(), they must support everything
///                              except user functions and sums of f16 and bf16
///   run(Collective, AllReduceAlgorithm)             replaces all verbs above: executes any of them
///   send_recv(Buffer out, to, Buffer in, from, tag) sends and receives at the same time
///   recv_any(Buffer, tag)      receives from any rank and returns the sender
///   start(Message)             starts a message that progresses by itself, and returns its
///                              std::shared_ptr<WorkState>. If a transport has this member, one thread may
///                              send and receive while another thread is in a collective
///   duplicate()                returns a second, independent transport over the same ranks (collective);
///                              without it, DistributedDataParallel does not overlap communication with
///                              backward
///   subgroup(ranks, name)      returns an independent transport over `ranks`, in that order. Collective
///                              among `ranks`. `name` is the same on all of them, and unique among the
///                              transport's subgroups
///   allocate(bytes)            returns a std::shared_ptr<void> to zeroed memory, aligned to 64 bytes, that
///                              the transport accesses without a copy
///   peer_memory(Buffer)        returns the addresses at which this process accesses every rank's memory that
///                              corresponds to the buffer, which is a part of an allocation: a
///                              std::vector<void*>, by rank. It is empty, on all ranks, if the ranks cannot
///                              access each other's memory
///   local_rank(), local_size() this rank's position among the ranks of this host, and their number
///   control()                  returns the std::shared_ptr<ControlPlane> over which ranks report failures to
///                              each other; without it, failures of other ranks are detected only by timeouts
///   start(Collective)          starts a call that progresses while a thread waits for it, and returns its
///                              std::shared_ptr<WorkState>; null if the transport cannot start this call
///   progresses_by_caller()     returns true if no background thread may enter the transport;
///                              start(Collective) is then used instead of background threads
///   competes_with_compute()    returns whether background calls use the CPU cores on which the program
///                              computes, so that background calls are better deferred until the program
///                              waits. Returns the same on all ranks
///   progress()                 progresses the started operations for a short time; returns whether any are
///                              still pending. Called now and then while the program waits for other ranks
///                              outside the transport
///   callable_from_this_thread() returns false if only the main thread may enter the transport, and the
///                              calling thread is another thread
///   leave()                    notifies the other ranks, without blocking, that this rank closes the group
///   takes_device_memory(Collective)  returns whether the transport can execute this call on CUDA device
///                              memory. The call must be in place, and all GPU work that writes its buffers
///                              must have ended
///   prepare(Collective)        replaces all verbs of a transport that accesses device memory: records the
///                              earlier work of the call's stream, and returns a std::function<void()> that
///                              executes the call, possibly on another thread
///   transfer(Message)          replaces send and recv of a transport with prepare(); returns the peer's rank
///   allocate_on_device(bytes)  returns DeviceMemory, zeroed, that the transport accesses without a copy
///   interruptible              static constexpr bool: whether JobState::fail ends calls that wait inside the
///                              transport
// clang-format on
template <class T>
concept Transport =
    std::movable<T> && requires(T& transport, const T& constant, const Buffer& buffer, int number) {
        { constant.rank() } -> std::same_as<int>;
        { constant.size() } -> std::same_as<int>;
        { constant.backend() } -> std::convertible_to<std::string_view>;
        transport.send(buffer, number, number);
        transport.recv(buffer, number, number);
    };

namespace detail {

template <class T>
concept HasAllReduce = requires(T& t, const Buffer& b, const Reduction& r) { t.all_reduce(b, r); };

template <class T>
concept HasReduce = requires(T& t, const Buffer& b, const Reduction& r, int root) { t.reduce(b, r, root); };

template <class T>
concept HasBroadcast = requires(T& t, const Buffer& b, int root) { t.broadcast(b, root); };

template <class T>
concept HasAllGather = requires(T& t, const Buffer& b) { t.all_gather(b, b); };

template <class T>
concept HasAllGatherUneven = requires(T& t, const Buffer& b, std::span<const std::size_t> counts) {
    t.all_gather_uneven(b, b, counts);
};

template <class T>
concept HasGather = requires(T& t, const Buffer& b, int root) { t.gather(b, b, root); };

template <class T>
concept HasScatter = requires(T& t, const Buffer& b, int root) { t.scatter(b, b, root); };

template <class T>
concept HasReduceScatter = requires(T& t, const Buffer& b, const Reduction& r) { t.reduce_scatter(b, b, r); };

template <class T>
concept HasAllToAll = requires(T& t, const Buffer& b) { t.all_to_all(b, b); };

template <class T>
concept HasReduces = requires(DType dtype, const Reduction& r) {
    { T::reduces(dtype, r) } -> std::same_as<bool>;
};

template <class T>
concept HasRun = requires(T& t, const Collective& call) { t.run(call, AllReduceAlgorithm{}); };

template <class T>
concept HasSendRecv =
    requires(T& t, const Buffer& b, int number) { t.send_recv(b, number, b, number, number); };

template <class T>
concept HasRecvAny = requires(T& t, const Buffer& b, int tag) {
    { t.recv_any(b, tag) } -> std::same_as<int>;
};

template <class T>
concept HasStartMessage = requires(T& t, const Message& message) {
    { t.start(message) } -> std::same_as<std::shared_ptr<WorkState>>;
};

template <class T>
concept HasSubgroup = requires(T& t, std::span<const int> ranks, std::string_view name) {
    { t.subgroup(ranks, name) } -> std::same_as<T>;
};

template <class T>
concept HasBarrier = requires(T& t) { t.barrier(); };

template <class T>
concept HasDuplicate = requires(T& t) {
    { t.duplicate() } -> std::same_as<T>;
};

template <class T>
concept HasAllocate = requires(T& t, std::size_t bytes) {
    { t.allocate(bytes) } -> std::same_as<std::shared_ptr<void>>;
};

template <class T>
concept HasPeerMemory = requires(const T& t, const Buffer& b) {
    { t.peer_memory(b) } -> std::same_as<std::vector<void*>>;
};

template <class T>
concept HasLocalRank = requires(const T& t) {
    { t.local_rank() } -> std::same_as<int>;
    { t.local_size() } -> std::same_as<int>;
};

template <class T>
concept HasControl = requires(const T& t) {
    { t.control() } -> std::same_as<std::shared_ptr<ControlPlane>>;
};

template <class T>
concept HasStart = requires(T& t, const T& c, const Collective& call) {
    { t.start(call) } -> std::same_as<std::shared_ptr<WorkState>>;
    { c.progresses_by_caller() } -> std::same_as<bool>;
};

template <class T>
concept HasPrepare = requires(T& t, const Collective& call) {
    { t.prepare(call) } -> std::same_as<std::function<void()>>;
};

template <class T>
concept HasTakesDeviceMemory = requires(const T& t, const Collective& call) {
    { t.takes_device_memory(call) } -> std::same_as<bool>;
};

template <class T>
concept HasTransfer = requires(T& t, const Message& message) {
    { t.transfer(message) } -> std::same_as<int>;
};

/// A transport whose calls execute on a GPU stream, such as comm/nccl/transport.hpp.
template <class T>
concept HasEnqueue =
    requires(T& t, const Collective& call, const Message& message, std::span<const Message> messages) {
        { t.enqueue(call) } -> std::same_as<std::shared_ptr<WorkState>>;
        { t.enqueue_beside(call) } -> std::same_as<std::shared_ptr<WorkState>>;
        t.follow(message);
        { t.enqueue_together(messages) } -> std::same_as<std::shared_ptr<WorkState>>;
    };

template <class T>
concept ServesDevices = HasPrepare<T> || HasEnqueue<T>;

template <class T>
concept HasAllocateOnDevice = requires(T& t, std::size_t bytes) {
    { t.allocate_on_device(bytes) } -> std::same_as<DeviceMemory>;
};

/// A transport whose close() is coordinated with the other ranks, and may block.
template <class T>
concept HasClose = requires(T& t) { t.close(); };

/// A transport whose rethrow_failure() throws the error of a failed background operation.
template <class T>
concept HasRethrow = requires(T& t) { t.rethrow_failure(); };

template <class T>
concept HasProgress = requires(T& t) {
    { t.progress() } -> std::same_as<bool>;
};

template <class T>
concept HasThreadRule = requires(const T& t) {
    { t.callable_from_this_thread() } -> std::same_as<bool>;
};

template <class T>
concept HasCompetes = requires(const T& t) {
    { t.competes_with_compute() } -> std::same_as<bool>;
};

template <class T>
concept HasLeave = requires(T& t) { t.leave(); };

template <class T>
concept Interruptible = requires { requires T::interruptible; };

/// Returns true if T is a Transport. If it is not, compilation fails with one message per missing member.
/// Compilation also fails if a member has the name of one of the optional verbs below but another signature.
/// Overloaded members and templates cannot be checked.
template <class T>
consteval bool checked_transport() {
    static_assert(std::movable<T>, "dptk: a transport must be movable");
    static_assert(
        requires(const T& t) {
            { t.rank() } -> std::same_as<int>;
        }, "dptk: a transport needs `int rank() const`: which process this is");
    static_assert(
        requires(const T& t) {
            { t.size() } -> std::same_as<int>;
        }, "dptk: a transport needs `int size() const`: how many processes there are");
    static_assert(
        requires(const T& t) {
            { t.backend() } -> std::convertible_to<std::string_view>;
        }, "dptk: a transport needs `std::string_view backend() const`: a short name for error texts");
    static_assert(
        requires(T& t, const Buffer& buffer, int number) { t.send(buffer, number, number); },
        "dptk: a transport needs `void send(const dptk::Buffer&, int to, int tag)`, which blocks until "
        "the buffer may be reused");
    static_assert(
        requires(T& t, const Buffer& buffer, int number) { t.recv(buffer, number, number); },
        "dptk: a transport needs `void recv(const dptk::Buffer&, int from, int tag)`, which blocks until "
        "the message has arrived");
    static_assert(
        !requires { &T::all_reduce; } || HasAllReduce<T>,
        "dptk: this transport's all_reduce would not be used: it cannot be called as all_reduce(const "
        "dptk::Buffer&, const dptk::Reduction&)");
    static_assert(
        !requires { &T::reduce; } || HasReduce<T>,
        "dptk: this transport's reduce would not be used: it cannot be called as reduce(const dptk::Buffer&, "
        "const dptk::Reduction&, int root)");
    static_assert(
        !requires { &T::broadcast; } || HasBroadcast<T>,
        "dptk: this transport's broadcast would not be used: it cannot be called as broadcast(const "
        "dptk::Buffer&, int root)");
    static_assert(
        !requires { &T::all_gather; } || HasAllGather<T>,
        "dptk: this transport's all_gather would not be used: it cannot be called as all_gather(const "
        "dptk::Buffer& in, const dptk::Buffer& out)");
    static_assert(
        !requires { &T::gather; } || HasGather<T>,
        "dptk: this transport's gather would not be used: it cannot be called as gather(const dptk::Buffer& "
        "in, const dptk::Buffer& out, int root)");
    static_assert(
        !requires { &T::scatter; } || HasScatter<T>,
        "dptk: this transport's scatter would not be used: it cannot be called as scatter(const "
        "dptk::Buffer& in, const dptk::Buffer& out, int root)");
    static_assert(
        !requires { &T::reduce_scatter; } || HasReduceScatter<T>,
        "dptk: this transport's reduce_scatter would not be used: it cannot be called as "
        "reduce_scatter(const dptk::Buffer& in, const dptk::Buffer& out, const dptk::Reduction&)");
    static_assert(
        !requires { &T::all_to_all; } || HasAllToAll<T>,
        "dptk: this transport's all_to_all would not be used: it cannot be called as all_to_all(const "
        "dptk::Buffer& in, const dptk::Buffer& out)");
    static_assert(
        !requires { &T::barrier; } || HasBarrier<T>,
        "dptk: this transport's barrier would not be used: it cannot be called as barrier()");
    static_assert(
        !requires { &T::run; } || HasRun<T>,
        "dptk: this transport's run would not be used: it cannot be called as run(const dptk::Collective&, "
        "dptk::AllReduceAlgorithm)");
    static_assert(
        !requires { &T::send_recv; } || HasSendRecv<T>,
        "dptk: this transport's send_recv would not be used: it cannot be called as send_recv(const "
        "dptk::Buffer& out, int to, const dptk::Buffer& in, int from, int tag)");
    static_assert(
        !requires { &T::duplicate; } || HasDuplicate<T>,
        "dptk: this transport's duplicate would not be used: it must have no parameters and return a "
        "transport of this type");
    return Transport<T>;
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE
