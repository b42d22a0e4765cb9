/// The check of a custom transport: compilation fails with one sentence for each missing member, and for each
/// optional member that has another signature, which would not be used otherwise.
#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>

#include "dptk/comm/detail/transport_members.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

template <class T>
concept HasConditionalMembers = requires { requires T::has_conditional_members; };

// For each optional member m: names_m<T> is true if T has a member called m, whatever its signature: a class
// that inherits a name twice cannot use it. If T has conditional members, names_m<T> is true only for a
// member that is not overloaded and whose requires clause is satisfied. It is false for a final class.
#define DPTK_NAME_MEMBER(member)                                  \
    struct Named_##member {                                       \
        int member;                                               \
    };                                                            \
    template <class T>                                            \
    struct NamedTwice_##member : T, Named_##member {};            \
    template <class T>                                            \
    concept names_##member =                                      \
        (HasConditionalMembers<T> && requires { &T::member; }) || \
        (!HasConditionalMembers<T> && !std::is_final_v<T> && !requires { &NamedTwice_##member<T>::member; })

DPTK_NAME_MEMBER(all_reduce);
DPTK_NAME_MEMBER(reduce);
DPTK_NAME_MEMBER(broadcast);
DPTK_NAME_MEMBER(all_gather);
DPTK_NAME_MEMBER(all_gather_uneven);
DPTK_NAME_MEMBER(all_to_all_uneven);
DPTK_NAME_MEMBER(gather);
DPTK_NAME_MEMBER(scatter);
DPTK_NAME_MEMBER(reduce_scatter);
DPTK_NAME_MEMBER(all_to_all);
DPTK_NAME_MEMBER(barrier);
DPTK_NAME_MEMBER(reduces);
DPTK_NAME_MEMBER(run);
DPTK_NAME_MEMBER(send_recv);
DPTK_NAME_MEMBER(recv_any);
DPTK_NAME_MEMBER(probe);
DPTK_NAME_MEMBER(duplicate);
DPTK_NAME_MEMBER(subgroup);
DPTK_NAME_MEMBER(allocate);
DPTK_NAME_MEMBER(peer_memory);
DPTK_NAME_MEMBER(local_rank);
DPTK_NAME_MEMBER(local_size);
DPTK_NAME_MEMBER(control);
DPTK_NAME_MEMBER(start);
DPTK_NAME_MEMBER(progresses_by_caller);
DPTK_NAME_MEMBER(competes_with_compute);
DPTK_NAME_MEMBER(progress);
DPTK_NAME_MEMBER(callable_from_this_thread);
DPTK_NAME_MEMBER(close);
DPTK_NAME_MEMBER(leave);
DPTK_NAME_MEMBER(rethrow_failure);
DPTK_NAME_MEMBER(takes_device_memory);
DPTK_NAME_MEMBER(prepare);
DPTK_NAME_MEMBER(transfer);
DPTK_NAME_MEMBER(allocate_on_device);
DPTK_NAME_MEMBER(enqueue);
DPTK_NAME_MEMBER(interruptible);

#undef DPTK_NAME_MEMBER

/// Returns whether T is a Transport. Otherwise compilation fails. Optional members of a final class are not
/// checked.
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

#define DPTK_CHECK_MEMBER(member, is_used, signature)                                                       \
    static_assert(!names_##member<T> || (is_used),                                                          \
                  "dptk: this transport's " #member " would not be used: it cannot be called as " signature \
                  ". If it is something else, rename it, even if it is private")

    DPTK_CHECK_MEMBER(all_reduce, (HasAllReduce<T>),
                      "all_reduce(const dptk::Buffer&, const dptk::Reduction&)");
    DPTK_CHECK_MEMBER(reduce, (HasReduce<T>),
                      "reduce(const dptk::Buffer&, const dptk::Reduction&, int root)");
    DPTK_CHECK_MEMBER(broadcast, (HasBroadcast<T>), "broadcast(const dptk::Buffer&, int root)");
    DPTK_CHECK_MEMBER(all_gather, (HasAllGather<T>),
                      "all_gather(const dptk::Buffer& in, const dptk::Buffer& out)");
    DPTK_CHECK_MEMBER(all_to_all_uneven, (HasAllToAllUneven<T>),
                      "all_to_all_uneven(const dptk::Buffer& in, const dptk::Buffer& out, std::span<const "
                      "std::size_t> counts, std::span<const std::size_t> output_counts)");
    DPTK_CHECK_MEMBER(all_gather_uneven, (HasAllGatherUneven<T>),
                      "all_gather_uneven(const dptk::Buffer& in, const dptk::Buffer& out, std::span<const "
                      "std::size_t> counts)");
    DPTK_CHECK_MEMBER(gather, (HasGather<T>),
                      "gather(const dptk::Buffer& in, const dptk::Buffer& out, int root)");
    DPTK_CHECK_MEMBER(scatter, (HasScatter<T>),
                      "scatter(const dptk::Buffer& in, const dptk::Buffer& out, int root)");
    DPTK_CHECK_MEMBER(reduce_scatter, (HasReduceScatter<T>),
                      "reduce_scatter(const dptk::Buffer& in, const dptk::Buffer& out, const "
                      "dptk::Reduction&)");
    DPTK_CHECK_MEMBER(all_to_all, (HasAllToAll<T>),
                      "all_to_all(const dptk::Buffer& in, const dptk::Buffer& out)");
    DPTK_CHECK_MEMBER(barrier, (HasBarrier<T>), "barrier()");
    DPTK_CHECK_MEMBER(reduces, (HasReduces<T>), "static bool reduces(dptk::DType, const dptk::Reduction&)");
    DPTK_CHECK_MEMBER(run, (HasRun<T>), "run(const dptk::Collective&, dptk::AllReduceAlgorithm)");
    DPTK_CHECK_MEMBER(
        send_recv, (HasSendRecv<T>),
        "send_recv(const dptk::Buffer& out, int to, const dptk::Buffer& in, int from, int tag)");
    DPTK_CHECK_MEMBER(probe, (HasProbe<T>), "std::optional<dptk::MessageInfo> probe(int from, int tag)");
    DPTK_CHECK_MEMBER(recv_any, (HasRecvAny<T>), "int recv_any(const dptk::Buffer&, int tag)");
    DPTK_CHECK_MEMBER(duplicate, (HasDuplicate<T>), "duplicate(), which returns a transport of this type");
    DPTK_CHECK_MEMBER(subgroup, (HasSubgroup<T>),
                      "subgroup(std::span<const int> ranks, std::string_view name), which returns a "
                      "transport of this type");
    DPTK_CHECK_MEMBER(allocate, (HasAllocate<T>), "std::shared_ptr<void> allocate(std::size_t bytes)");
    DPTK_CHECK_MEMBER(peer_memory, (HasPeerMemory<T>),
                      "std::vector<void*> peer_memory(const dptk::Buffer&) const");
    DPTK_CHECK_MEMBER(local_rank, (HasLocalRank<T>), "int local_rank() const, beside int local_size() const");
    DPTK_CHECK_MEMBER(local_size, (HasLocalRank<T>), "int local_size() const, beside int local_rank() const");
    DPTK_CHECK_MEMBER(control, (HasControl<T>),
                      "std::shared_ptr<dptk::detail::ControlPlane> control() const");
    DPTK_CHECK_MEMBER(start, (HasStart<T> || HasStartMessage<T>),
                      "std::shared_ptr<dptk::WorkState> start(const dptk::Message&), or start(const "
                      "dptk::Collective&) beside bool progresses_by_caller() const");
    DPTK_CHECK_MEMBER(progresses_by_caller, (HasStart<T>),
                      "bool progresses_by_caller() const, beside start(const dptk::Collective&)");
    DPTK_CHECK_MEMBER(competes_with_compute, (HasCompetes<T>), "bool competes_with_compute() const");
    DPTK_CHECK_MEMBER(progress, (HasProgress<T>), "bool progress()");
    DPTK_CHECK_MEMBER(callable_from_this_thread, (HasThreadRule<T>),
                      "bool callable_from_this_thread() const");
    DPTK_CHECK_MEMBER(close, (HasClose<T>), "close()");
    DPTK_CHECK_MEMBER(leave, (HasLeave<T>), "leave()");
    DPTK_CHECK_MEMBER(rethrow_failure, (HasRethrow<T>), "rethrow_failure()");
    DPTK_CHECK_MEMBER(takes_device_memory, (HasTakesDeviceMemory<T>),
                      "bool takes_device_memory(const dptk::Collective&) const");
    DPTK_CHECK_MEMBER(prepare, (HasPrepare<T>), "std::function<void()> prepare(const dptk::Collective&)");
    DPTK_CHECK_MEMBER(transfer, (HasTransfer<T>), "int transfer(const dptk::Message&)");
    DPTK_CHECK_MEMBER(allocate_on_device, (HasAllocateOnDevice<T>),
                      "dptk::DeviceMemory allocate_on_device(std::size_t bytes)");
    DPTK_CHECK_MEMBER(enqueue, (HasEnqueue<T>),
                      "enqueue(const dptk::Collective&), beside enqueue_beside, follow and enqueue_together");
    DPTK_CHECK_MEMBER(interruptible, (HasInterruptible<T>), "static constexpr bool interruptible");

#undef DPTK_CHECK_MEMBER

    return Transport<T>;
}

}  // namespace DPTK_NAMESPACE::detail
