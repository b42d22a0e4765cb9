/// The typed verbs: spans and contiguous ranges of elements in, one erased Collective out. Communicators and
/// ProcessGroup inherit them, so that each verb stands once.
///
/// All verbs are collective: every rank of the group calls the same ones in the same order, from one thread
/// at a time. The blocking ones return when this rank's buffers may be used again.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <ranges>
#include <type_traits>
#include <vector>

#include "dptk/comm/allocation.hpp"
#include "dptk/comm/channel.hpp"

namespace dptk {

/// A contiguous range of elements to read: std::vector<float>, std::span<const double>, std::array<int, 3>,
/// ...
template <class R>
concept ElementRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Element<std::ranges::range_value_t<R>>;

/// One whose elements may be written.
template <class R>
concept MutableElementRange =
    ElementRange<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

/// One that does not die with the call that starts an operation on it: a variable, or a view of one.
template <class R>
concept OutlivesCall = std::is_lvalue_reference_v<R> || std::ranges::borrowed_range<R>;

namespace detail {

template <ElementRange R>
[[nodiscard]] Buffer buffer_of(R&& range) {
    using T = std::ranges::range_value_t<R>;
    // A collective that only reads leaves the elements alone; Buffer does not distinguish.
    void* data = const_cast<std::remove_const_t<T>*>(std::ranges::data(range));
    return {data, static_cast<std::size_t>(std::ranges::size(range)), dtype_of<T>, {}};
}

/// What an operation on `range` must keep alive: the memory of an Allocation; nothing of the user's.
template <class R>
[[nodiscard]] std::shared_ptr<const void> owner_of(const R&) {
    return nullptr;
}

template <class T>
[[nodiscard]] std::shared_ptr<const void> owner_of(const Allocation<T>& allocation) {
    return allocation.memory();
}

}  // namespace detail

/// `Self` gives channel(): the Channel that carries the calls.
template <class Self>
class CollectiveVerbs {
  public:
    /// This process's rank in the group, in [0, size() - 1].
    [[nodiscard]] int rank() const { return channel().rank(); }

    /// The number of ranks in the group.
    [[nodiscard]] int size() const { return channel().size(); }

    /// This process's position among the ranks on its host.
    [[nodiscard]] int local_rank() const { return channel().local_rank(); }

    /// The number of ranks on this host.
    [[nodiscard]] int local_size() const { return channel().local_size(); }

    /// The transport's name: "mpi", "threads", "self".
    [[nodiscard]] std::string backend() const { return channel().backend(); }

    /// Combines the elements of all ranks, position by position, in place: every rank gets the same bits.
    /// The same count on all ranks. Throws ArgumentError where the operation has no meaning for the type.
    template <MutableElementRange R>
    void all_reduce(R&& data, ReduceOp op = ReduceOp::sum) {
        channel().run(all_reduce_call(data, op));
    }

    /// Starts all_reduce. `data` must live until the Work is done; an Allocation's memory does by itself.
    /// Takes no owning temporary.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work all_reduce_async(R&& data, ReduceOp op = ReduceOp::sum) {
        return channel().start(all_reduce_call(data, op), detail::owner_of(data));
    }

    /// all_reduce of one value, returned.
    template <Element T>
    [[nodiscard]] T all_reduce_value(T value, ReduceOp op = ReduceOp::sum) {
        all_reduce(std::span<T>(&value, 1), op);
        return value;
    }

    /// Sends the root's elements to all ranks, in place. Throws ArgumentError for a root outside the group.
    template <MutableElementRange R>
    void broadcast(R&& data, int root = 0) {
        channel().run(broadcast_call(data, root));
    }

    /// Starts broadcast. `data` must live until the Work is done.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work broadcast_async(R&& data, int root = 0) {
        return channel().start(broadcast_call(data, root), detail::owner_of(data));
    }

    /// output = the inputs of all ranks, in rank order. output has size() times as many elements as input, of
    /// the same type; throws ArgumentError otherwise. The same count on all ranks.
    template <ElementRange In, MutableElementRange Out>
    void all_gather(In&& input, Out&& output) {
        channel().run(all_gather_call(input, output));
    }

    /// Starts all_gather. Both ranges must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work all_gather_async(In&& input, Out&& output) {
        return channel().start(all_gather_call(input, output),
                               std::make_shared<std::array<std::shared_ptr<const void>, 2>>(
                                   std::array{detail::owner_of(input), detail::owner_of(output)}));
    }

    /// all_gather of one value: the values of all ranks, in rank order.
    template <Element T>
    [[nodiscard]] std::vector<T> all_gather_value(T value) {
        std::vector<T> values(static_cast<std::size_t>(size()));
        all_gather(std::span<const T>(&value, 1), values);
        return values;
    }

    /// Returns when all ranks have called it, and everything that was started before is done. Throws the
    /// error of an operation whose Work was dropped.
    void barrier() { channel().run({}); }

    /// Starts a barrier: the Work is done when all ranks have started theirs.
    [[nodiscard]] Work barrier_async() { return channel().start({}, nullptr); }

    /// A barrier that blocks for at most `timeout`; without one, for the group's. Where ranks are missing by
    /// then, all others throw a TimeoutError that names every one of them, and so do these when they come
    /// later. It is agreed: the group stays usable. Dearer than barrier(). Throws ArgumentError where the
    /// transport has no control plane.
    void monitored_barrier(std::chrono::milliseconds timeout) { channel().monitored_barrier(timeout); }
    void monitored_barrier() { monitored_barrier(channel().control().timeout()); }

    /// `count` elements, the same on all ranks, in memory that the transport reaches without a copy.
    /// Collective.
    template <Element T>
    [[nodiscard]] Allocation<T> allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw ArgumentError(detail::text("rank ", rank(), ": allocate of ", count, " elements"));
        }
        return {channel().allocate(count * sizeof(T)), count};
    }

  private:
    [[nodiscard]] Channel& channel() { return static_cast<Self&>(*this).channel(); }
    [[nodiscard]] const Channel& channel() const { return static_cast<const Self&>(*this).channel(); }

    template <class R>
    [[nodiscard]] static Collective all_reduce_call(R& data, ReduceOp op) {
        const Buffer buffer = detail::buffer_of(data);
        check_reduction(buffer.dtype, op);
        return {Verb::all_reduce, buffer, buffer, op, 0};
    }

    template <class R>
    [[nodiscard]] Collective broadcast_call(R& data, int root) const {
        if (root < 0 || root >= size()) {
            throw ArgumentError(detail::text("rank ", rank(), ": broadcast from root ", root,
                                             ", outside [0, ", size() - 1, "]"));
        }
        const Buffer buffer = detail::buffer_of(data);
        return {Verb::broadcast, buffer, buffer, ReduceOp::sum, root};
    }

    template <class In, class Out>
    [[nodiscard]] Collective all_gather_call(In& input, Out& output) const {
        const Buffer in = detail::buffer_of(input);
        const Buffer out = detail::buffer_of(output);
        static_assert(dtype_of<std::ranges::range_value_t<In>> == dtype_of<std::ranges::range_value_t<Out>>,
                      "all_gather: input and output have different element types");
        if (out.count != in.count * static_cast<std::size_t>(size())) {
            throw ArgumentError(detail::text("rank ", rank(), ": all_gather of ", in.count,
                                             " elements on each of ", size(), " ranks into ", out.count,
                                             " elements"));
        }
        return {Verb::all_gather, in, out, ReduceOp::sum, 0};
    }
};

}  // namespace dptk
