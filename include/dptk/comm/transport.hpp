/// The Transport concept: what somebody writes to bring their own network. Rank, size, a name, and blocking
/// point-to-point messages are enough; every other verb is used where the transport has it, and otherwise
/// made from send and recv by comm/algorithms/run.hpp.
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
/// Required:
///   rank(), size()             this process, and how many there are
///   backend()                  a short name for messages: "mpi"
///   send(buffer, to, tag)      blocks until the buffer may be reused, perhaps until it has been received
///   recv(buffer, from, tag)    blocks until the message of exactly this size has arrived
/// A failure throws. One thread at a time calls a transport. Messages from one rank to another with one tag arrive in
/// the order in which they were sent.
///
/// Used where it exists, for counts beyond 2^31 as well:
///   all_reduce(Buffer, Reduction)                   in place; so that all ranks get the same bits
///   reduce(Buffer, Reduction, root)                 in place at the root; other ranks' memory stays as it is
///   broadcast(Buffer, root)
///   all_gather(Buffer in, Buffer out)               `in` may be its part of `out`; so in all of these
///   all_gather_uneven(Buffer in, Buffer out, std::span<const std::size_t> counts)
///   gather(Buffer in, Buffer out, root), scatter(Buffer in, Buffer out, root)
///   reduce_scatter(Buffer in, Buffer out, Reduction)
///   all_to_all(Buffer in, Buffer out)               two different buffers
///   barrier()
///   static reduces(DType, Reduction)                whether the three reducing verbs above know these; without it they
///                              are asked for anything but 16-bit sums and functions of the user's
///   run(Collective, AllReduceAlgorithm)             in place of all verbs above: carries out any of them
///   send_recv(Buffer out, to, Buffer in, from, tag) both at once
///   recv_any(Buffer, tag)      from any rank; returns which
///   start(Message)             std::shared_ptr<WorkState> of a message that goes on by itself. Where a transport has it,
///                              one thread may send and receive while another one is in a collective
///   duplicate()                a second, independent transport over the same ranks (collective); without it nothing
///                              communicates in the background
///   subgroup(ranks, name)      the same over some of the ranks, in that order. Collective among them; the name is the
///                              same on them, and another one for each subgroup of a transport
///   allocate(bytes)            std::shared_ptr<void> to zeroed memory, aligned to 64 bytes, that it reaches without
///                              a copy
///   peer_memory(Buffer)        std::vector<void*>: where this process reaches all ranks' memory at that place of an
///                              allocation, its own among them; empty where it does not, on all ranks alike
///   local_rank(), local_size() the position among the ranks of this host
///   control()                  std::shared_ptr<ControlPlane>, through which ranks tell each other that they have
///                              failed; without it there are deadlines alone
///   start(Collective)          std::shared_ptr<WorkState>: a call that whoever waits for it progresses; null where the
///                              transport cannot do that for this call
///   progresses_by_caller()     true where no background thread may enter the transport, and start() serves instead
///   competes_with_compute()    whether what it does in the background is done by the processors on which the program
///                              computes, so that it had better wait until the program does. The same on all ranks
///   progress()                 goes on with what was started, for a moment; returns whether there is any. Called now and
///                              then while the program waits for the ranks by other ways than the transport's
///   callable_from_this_thread() false where only the main thread may enter the transport, and this is another
///   leave()                    says goodbye to the other ranks without blocking, when the group closes
///   takes_device_memory(Collective)  whether it reads and writes the memory of CUDA devices itself, in this call: one that
///                              works in place, behind all that is to be there
///   prepare(Collective)        in place of all verbs, of a transport that reaches device memory, too: takes note of what
///                              the call's stream has to do before, and returns a std::function<void()> that carries the
///                              call out, perhaps on another thread
///   transfer(Message)          in place of send and recv, of such a transport; returns the other rank
///   allocate_on_device(bytes)  DeviceMemory, zeroed, that it reaches without a copy
///   interruptible              static constexpr bool: whether JobState::fail ends calls that wait inside
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

/// A transport whose calls a GPU carries out: comm/nccl/transport.hpp.
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

/// Closes in order, with the other ranks, and may block.
template <class T>
concept HasClose = requires(T& t) { t.close(); };

/// Knows what has failed in the background, and throws it.
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

/// Whether it is a Transport; where it is none, one sentence for each thing that it lacks. What only has the
/// name of an optional verb is a mistake as well (as far as a template sees it: overloads are not looked at).
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
        }, "dptk: a transport needs `std::string_view backend() const`: a short name for messages");
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
        "dptk: this transport's duplicate would not be used: it takes nothing, and returns a transport of "
        "this type");
    return Transport<T>;
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE
