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
///   all_to_all_uneven(Buffer in, Buffer out, std::span<const std::size_t> counts,
///                     std::span<const std::size_t> output_counts)   the two buffers do not overlap
///   barrier()
///   static reduces(DType, Reduction)                returns whether the three reducing verbs above support
///                              this dtype and reduction. Without reduces(), they must support everything
///                              except user functions and sums of f16 and bf16
///   run(Collective, AllReduceAlgorithm)             replaces all verbs above: executes any of them
///   send_recv(Buffer out, to, Buffer in, from, tag) sends and receives at the same time
///   recv_any(Buffer, tag)      receives from any rank and returns the sender
///   probe(from, tag)           returns the first message that has been sent to this rank, and that no recv
///                              waits for, as a std::optional<MessageInfo>, null until one has come. `from` may
///                              be any_rank, and `tag` any_tag, which stands for the tags up to max_tag. Does
///                              not block
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
///   interruptible              static constexpr bool: true if calls that wait inside the transport end as
///                              soon as check_call() throws, because they wait with the functions of
///                              comm/call_wait.hpp. Otherwise a failure of the job, or a call's time limit,
///                              ends the process if a call does not return within a second
///   has_conditional_members    static constexpr bool: true for a transport that wraps any other one, and has
///                              optional members with a requires clause
/// A member that has the name of an optional one and another signature is a compile error.
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

}  // namespace DPTK_NAMESPACE
