/// The optional members of a transport, one concept each: see comm/transport.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
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

namespace DPTK_NAMESPACE::detail {

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
concept HasAllToAllUneven = requires(T& t, const Buffer& b, std::span<const std::size_t> counts) {
    t.all_to_all_uneven(b, b, counts, counts);
};

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
concept HasProbe = requires(T& t, int number) {
    { t.probe(number, number) } -> std::same_as<std::optional<MessageInfo>>;
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

/// One of dptk's own transports, which creates the control plane over which ranks report failures to each
/// other.
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
concept HasInterruptible = requires {
    { T::interruptible } -> std::convertible_to<bool>;
};

template <class T>
concept Interruptible = HasInterruptible<T> && T::interruptible;

}  // namespace DPTK_NAMESPACE::detail
