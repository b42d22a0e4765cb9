/// The Transport concept: what somebody writes to bring their own network. Rank, size, a name, and blocking
/// point-to-point messages are enough; every other verb is used where the transport has it, and otherwise
/// made from send and recv by comm/algorithms.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <string_view>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/core/buffer.hpp"

namespace dptk {

// clang-format off
/// Required:
///   rank(), size()             this process, and how many there are
///   backend()                  a short name for messages: "mpi"
///   send(buffer, to, tag)      blocks until the buffer may be reused, perhaps until it has been received
///   recv(buffer, from, tag)    blocks until the message of exactly this size has arrived
/// A failure throws. One thread at a time calls a transport.
///
/// Used where it exists:
///   all_reduce(Buffer, op), broadcast(Buffer, root), all_gather(Buffer in, Buffer out), barrier()
///   duplicate()                a second, independent transport over the same ranks (collective); without it nothing
///                              communicates in the background
///   allocate(bytes)            std::shared_ptr<void> to zeroed memory, aligned to 64 bytes, that it reaches without
///                              a copy
///   local_rank(), local_size() the position among the ranks of this host
///   control()                  std::shared_ptr<ControlPlane>, through which ranks tell each other that they have
///                              failed; without it there are deadlines alone
///   start(Collective)          std::shared_ptr<WorkState>: a call that whoever waits for it progresses
///   progresses_by_caller()     true where no background thread may enter the transport, and start() serves instead
///   callable_from_this_thread() false where only the main thread may enter the transport, and this is another
///   leave()                    says goodbye to the other ranks without blocking, when the group closes
///   interruptible              static constexpr bool: whether JobHealth::fail ends calls that wait inside
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
concept HasAllReduce = requires(T& t, const Buffer& b, ReduceOp op) { t.all_reduce(b, op); };

template <class T>
concept HasBroadcast = requires(T& t, const Buffer& b, int root) { t.broadcast(b, root); };

template <class T>
concept HasAllGather = requires(T& t, const Buffer& b) { t.all_gather(b, b); };

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
concept HasThreadRule = requires(const T& t) {
    { t.callable_from_this_thread() } -> std::same_as<bool>;
};

template <class T>
concept HasLeave = requires(T& t) { t.leave(); };

template <class T>
concept Interruptible = requires { requires T::interruptible; };

}  // namespace detail

}  // namespace dptk
