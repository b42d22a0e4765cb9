/// The typed collectives: ranges of elements in, one erased Collective out. Communicators and ProcessGroup
/// inherit them, so that each verb stands once.
///
/// All are collective: every rank of the group calls the same ones in the same order, from one thread at a
/// time. The blocking ones return when this rank's buffers may be used again; the buffers of those that end
/// in _async must live until their Work is done (an Allocation's memory does by itself), and cannot be owning
/// temporaries. All throw ArgumentError, on the rank where it happens, for counts, roots and operations that
/// make no sense; what must be equal on all ranks, and is not, is found under DPTK_DEBUG=detail.
///
/// The elements of a call lie in host memory, or all on one device. There the call takes its place in
/// `stream`: it uses what the stream has written before, and the stream goes on when the result is there.
/// Over NCCL the host does not wait for that: a blocking call returns when it has been handed to the GPU, and
/// what it fails with is thrown by the next call, or by Work::wait(). Host memory has no streams: there
/// `stream` is ignored.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/allocation.hpp"
#include "dptk/comm/detail/channel.hpp"
#include "dptk/comm/ranges.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The elements of all ranks, of any number each.
template <Element T>
struct UnevenElements {
    /// In rank order.
    std::vector<T> elements;
    /// How many of them each rank gave.
    std::vector<std::size_t> counts;

    /// The elements of one rank, valid as long as `elements` is left alone.
    [[nodiscard]] std::span<const T> of(int rank) const {
        const auto begin = counts.begin();
        const std::size_t first = std::accumulate(begin, begin + rank, std::size_t{0});
        return std::span(elements).subspan(first, counts[static_cast<std::size_t>(rank)]);
    }
};

/// The collectives of BasicCommunicator and ProcessGroup. Every rank of the group calls the same ones in the
/// same order. A verb that ends in _async starts its call, which goes on in the background: until its Work is
/// done, nobody else may write what it reads, or use what it writes, and the buffers must live; the memory of
/// an Allocation does so by itself.
///
/// `Self` gives channel(): the Channel that carries the calls.
template <class Self>
class CollectiveVerbs {
  public:
    /// This process's rank in the group, in [0, size() - 1].
    [[nodiscard]] int rank() const { return channel().rank(); }

    /// The number of ranks in the group.
    [[nodiscard]] int size() const { return channel().size(); }

    /// This process's position among the group's ranks on its host.
    [[nodiscard]] int local_rank() const { return channel().local_rank(); }

    /// The number of the group's ranks on this host.
    [[nodiscard]] int local_size() const { return channel().local_size(); }

    /// The transport's name: "mpi", "threads", "self".
    [[nodiscard]] std::string backend() const { return channel().backend(); }

    /// Combines the elements of all ranks, position by position, in place: every rank gets the same bits.
    /// `operation` is a ReduceOp or a function. The same count on all ranks.
    template <MutableElementRange R>
    void all_reduce(R&& data, const ReduceOperationOn<R>& operation = ReduceOp::sum, StreamRef stream = {}) {
        run(all_reduce_call(data, data, operation), stream);
    }

    /// The same with the result in `output`, of the same count, which may be `input`.
    template <ElementRange In, MutableElementRange Out>
    void all_reduce(In&& input, Out&& output, const ReduceOperationOn<Out>& operation = ReduceOp::sum,
                    StreamRef stream = {}) {
        run(all_reduce_call(input, output, operation), stream);
    }

    /// Starts all_reduce(data, operation). `data` has the result when the Work is done, and must live until
    /// then.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work all_reduce_async(R&& data, const ReduceOperationOn<R>& operation = ReduceOp::sum,
                                        StreamRef stream = {}) {
        return start(all_reduce_call(data, data, operation), stream, data, operation);
    }

    /// Starts all_reduce(input, output, operation). Both must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work all_reduce_async(In&& input, Out&& output,
                                        const ReduceOperationOn<Out>& operation = ReduceOp::sum,
                                        StreamRef stream = {}) {
        return start(all_reduce_call(input, output, operation), stream, input, output, operation);
    }

    /// all_reduce of one value, returned.
    template <Element T>
    [[nodiscard]] T all_reduce_value(
        T value, const ReduceOperation<std::type_identity_t<T>>& operation = ReduceOp::sum) {
        all_reduce(std::span<T>(&value, 1), operation);
        return value;
    }

    /// Combines the elements of all ranks into the root's, in place; other ranks' elements stay as they are.
    /// The same count on all ranks.
    template <MutableElementRange R>
    void reduce(R&& data, int root = 0, const ReduceOperationOn<R>& operation = ReduceOp::sum,
                StreamRef stream = {}) {
        run(reduce_call(data, data, root, operation), stream);
    }

    /// The same with the result in the root's `output`, of the same count. Elsewhere `output` is not used.
    template <ElementRange In, MutableElementRange Out>
    void reduce(In&& input, Out&& output, int root = 0,
                const ReduceOperationOn<Out>& operation = ReduceOp::sum, StreamRef stream = {}) {
        run(reduce_call(input, output, root, operation), stream);
    }

    /// Starts reduce(data, root, operation). `data` must live until the Work is done.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work reduce_async(R&& data, int root = 0,
                                    const ReduceOperationOn<R>& operation = ReduceOp::sum,
                                    StreamRef stream = {}) {
        return start(reduce_call(data, data, root, operation), stream, data, operation);
    }

    /// Starts reduce(input, output, root, operation). Both must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work reduce_async(In&& input, Out&& output, int root = 0,
                                    const ReduceOperationOn<Out>& operation = ReduceOp::sum,
                                    StreamRef stream = {}) {
        return start(reduce_call(input, output, root, operation), stream, input, output, operation);
    }

    /// Sends the root's elements to all ranks, in place. The same count on all ranks.
    template <MutableElementRange R>
    void broadcast(R&& data, int root = 0, StreamRef stream = {}) {
        run(broadcast_call(data, root), stream);
    }

    /// Starts broadcast(data, root). `data` must live until the Work is done.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work broadcast_async(R&& data, int root = 0, StreamRef stream = {}) {
        return start(broadcast_call(data, root), stream, data);
    }

    /// output = the inputs of all ranks, in rank order: size() times as many elements. The same count on all
    /// ranks. `input` may be this rank's place in `output`.
    template <ElementRange In, MutableElementRange Out>
    void all_gather(In&& input, Out&& output, StreamRef stream = {}) {
        run(all_gather_call(input, output), stream);
    }

    /// Starts all_gather(input, output). Both must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work all_gather_async(In&& input, Out&& output, StreamRef stream = {}) {
        return start(all_gather_call(input, output), stream, input, output);
    }

    /// The same where rank i gives counts[i] elements, and `output` has as many as all together. The same
    /// counts on all ranks.
    template <ElementRange In, MutableElementRange Out>
    void all_gather(In&& input, Out&& output, std::span<const std::size_t> counts, StreamRef stream = {}) {
        run(all_gather_uneven_call(input, output, counts), stream);
    }

    /// Starts all_gather(input, output, counts). Input and output must live until the Work is done; `counts`
    /// is copied.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work all_gather_async(In&& input, Out&& output, std::span<const std::size_t> counts,
                                        StreamRef stream = {}) {
        const auto kept = std::make_shared<const std::vector<std::size_t>>(counts.begin(), counts.end());
        return start(all_gather_uneven_call(input, output, *kept), stream, input, output,
                     std::shared_ptr<const void>(kept));
    }

    /// The elements of all ranks, where no rank knows how many another one gives.
    template <HostRange In>
    [[nodiscard]] auto all_gather_uneven(In&& input) {
        using T = ElementIn<In>;
        static_assert(!std::same_as<T, bool>,
                      "a vector of bool has no elements to receive: gather std::uint8_t");
        UnevenElements<T> all;
        all.counts = all_gather_value(static_cast<std::size_t>(std::ranges::size(input)));
        all.elements.resize(std::accumulate(all.counts.begin(), all.counts.end(), std::size_t{0}));
        all_gather(input, all.elements, all.counts);
        return all;
    }

    /// all_gather of one value: the values of all ranks, in rank order.
    template <Element T>
    [[nodiscard]] std::vector<T> all_gather_value(T value) {
        if constexpr (std::same_as<T, bool>) {  // whose vector has no elements to receive
            const auto bytes = all_gather_value(static_cast<std::uint8_t>(value));
            return {bytes.begin(), bytes.end()};
        } else {
            std::vector<T> values(static_cast<std::size_t>(size()));
            all_gather(std::span<const T>(&value, 1), values);
            return values;
        }
    }

    /// The root's output = the inputs of all ranks, in rank order: size() times as many elements. Elsewhere
    /// `output` is not used. The same count on all ranks. The root's input may be its place in its output.
    template <ElementRange In, MutableElementRange Out>
    void gather(In&& input, Out&& output, int root = 0, StreamRef stream = {}) {
        run(gather_call(input, output, root), stream);
    }

    /// Starts gather(input, output, root). Both must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work gather_async(In&& input, Out&& output, int root = 0, StreamRef stream = {}) {
        return start(gather_call(input, output, root), stream, input, output);
    }

    /// output = this rank's part of the root's input, which has size() times as many elements. Elsewhere
    /// `input` is not used. The same count on all ranks. The root's output may be its place in its input.
    template <ElementRange In, MutableElementRange Out>
    void scatter(In&& input, Out&& output, int root = 0, StreamRef stream = {}) {
        run(scatter_call(input, output, root), stream);
    }

    /// Starts scatter(input, output, root). Both must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work scatter_async(In&& input, Out&& output, int root = 0, StreamRef stream = {}) {
        return start(scatter_call(input, output, root), stream, input, output);
    }

    /// Combines the inputs of all ranks, position by position; output = this rank's part of the result.
    /// `input` has size() times as many elements, and stays as it is, unless `output` is this rank's place in
    /// it. The same count on all ranks.
    template <ElementRange In, MutableElementRange Out>
    void reduce_scatter(In&& input, Out&& output, const ReduceOperationOn<Out>& operation = ReduceOp::sum,
                        StreamRef stream = {}) {
        run(reduce_scatter_call(input, output, operation), stream);
    }

    /// Starts reduce_scatter(input, output, operation). Both must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work reduce_scatter_async(In&& input, Out&& output,
                                            const ReduceOperationOn<Out>& operation = ReduceOp::sum,
                                            StreamRef stream = {}) {
        return start(reduce_scatter_call(input, output, operation), stream, input, output, operation);
    }

    /// Part i of this rank's input becomes part rank() of rank i's output. Both have the same count, a
    /// multiple of size(), on all ranks. `output` may be `input`.
    template <ElementRange In, MutableElementRange Out>
    void all_to_all(In&& input, Out&& output, StreamRef stream = {}) {
        run(all_to_all_call(input, output), stream);
    }

    /// Starts all_to_all(input, output). Both must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work all_to_all_async(In&& input, Out&& output, StreamRef stream = {}) {
        return start(all_to_all_call(input, output), stream, input, output);
    }

    /// Returns when all ranks have called it, and all collectives that were started before are done, and all
    /// messages whose Work was dropped: it waits for these first, so they must not be received behind the
    /// barrier alone. Throws the error of an operation whose Work was dropped.
    void barrier() { run({}, {}); }

    /// Starts a barrier: the Work is done when all ranks have started theirs.
    [[nodiscard]] Work barrier_async() { return start({}, {}); }

    /// A barrier that blocks for at most `timeout`; without one, for the group's. Where ranks are missing by
    /// then, all others throw a TimeoutError that names every one of them, and so do these when they come
    /// later. It is agreed: the group stays usable. Dearer than barrier(). Throws ArgumentError where the
    /// transport has no control plane.
    void monitored_barrier(std::chrono::milliseconds timeout) { channel().monitored_barrier(timeout); }
    /// The same, with the group's own timeout.
    void monitored_barrier() { monitored_barrier(channel().identity().timeout); }

    /// How the all_reduce calls that follow are carried out. Communicates nothing; the same on all ranks.
    void set_all_reduce_algorithm(AllReduceAlgorithm algorithm) { channel().set_algorithm(algorithm); }

    /// `count` elements, the same on all ranks, in memory that the transport reaches without a copy.
    /// Collective.
    template <Element T>
    [[nodiscard]] Allocation<T> allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw ArgumentError(detail::text("rank ", rank(), ": allocate of ", count, " elements"));
        }
        return {channel().allocate(count * sizeof(T)), count};
    }

    /// The same in the memory of the current CUDA device. Throws ArgumentError in a group that reaches host
    /// memory alone.
    template <Element T>
    [[nodiscard]] DeviceAllocation<T> allocate_on_device(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw ArgumentError(
                detail::text("rank ", rank(), ": allocate_on_device of ", count, " elements"));
        }
        return {channel().allocate_on_device(count * sizeof(T)), count};
    }

  private:
    [[nodiscard]] detail::Channel& channel() { return static_cast<Self&>(*this).channel(); }
    [[nodiscard]] const detail::Channel& channel() const { return static_cast<const Self&>(*this).channel(); }

    void run(Collective call, StreamRef stream) {
        call.stream = stream;
        channel().run(call);
    }

    template <class... Owners>
    [[nodiscard]] Work start(Collective call, StreamRef stream, const Owners&... owners) {
        call.stream = stream;
        return channel().start(call, detail::owner_of_all(owners...));
    }

    template <class In, class Out>
    [[nodiscard]] static Collective call_on(Verb verb, In& input, Out& output) {
        static_assert(detail::SameElements<In, Out>, "input and output have different element types");
        const Collective call{
            .verb = verb, .input = detail::buffer_of(input), .output = detail::buffer_of(output)};
        if (call.input.device == call.output.device || call.input.count == 0 || call.output.count == 0)
            return call;
        throw ArgumentError(detail::text(verb_name(verb), " of elements on ", device_name(call.input.device),
                                         " into elements on ", device_name(call.output.device)));
    }

    template <class In, class Out>
    [[nodiscard]] Collective rooted_call_on(Verb verb, In& input, Out& output, int root) const {
        Collective call = call_on(verb, input, output);
        call.root = root;
        if (root >= 0 && root < size()) return call;
        throw ArgumentError(detail::text("rank ", rank(), ": ", verb_name(verb), " with root ", root,
                                         ", outside [0, ", size() - 1, "]"));
    }

    template <class In, class Out>
    [[nodiscard]] Collective all_reduce_call(In& input, Out& output,
                                             const ReduceOperationOn<Out>& operation) const {
        Collective call = call_on(Verb::all_reduce, input, output);
        call.reduction = operation.reduction();
        check_reduction(call.input.dtype, call.reduction);
        check_counts(call, call.input.count, call.output.count);
        return call;
    }

    template <class In, class Out>
    [[nodiscard]] Collective reduce_call(In& input, Out& output, int root,
                                         const ReduceOperationOn<Out>& operation) const {
        Collective call = rooted_call_on(Verb::reduce, input, output, root);
        call.reduction = operation.reduction();
        check_reduction(call.input.dtype, call.reduction);
        if (rank() == root) check_counts(call, call.input.count, call.output.count);
        return call;
    }

    template <class R>
    [[nodiscard]] Collective broadcast_call(R& data, int root) const {
        return rooted_call_on(Verb::broadcast, data, data, root);
    }

    template <class In, class Out>
    [[nodiscard]] Collective all_gather_call(In& input, Out& output) const {
        const Collective call = call_on(Verb::all_gather, input, output);
        check_counts(call, call.input.count * ranks(), call.output.count);
        return call;
    }

    template <class In, class Out>
    [[nodiscard]] Collective all_gather_uneven_call(In& input, Out& output,
                                                    std::span<const std::size_t> counts) const {
        Collective call = call_on(Verb::all_gather_uneven, input, output);
        call.counts = counts;
        if (counts.size() != ranks()) {
            throw ArgumentError(detail::text("rank ", rank(), ": all_gather with ", counts.size(),
                                             " counts in a group of ", size(), " ranks"));
        }
        check_counts(call, std::accumulate(counts.begin(), counts.end(), std::size_t{0}), call.output.count);
        check_counts(call, counts[static_cast<std::size_t>(rank())], call.input.count);
        return call;
    }

    template <class In, class Out>
    [[nodiscard]] Collective gather_call(In& input, Out& output, int root) const {
        const Collective call = rooted_call_on(Verb::gather, input, output, root);
        if (rank() == root) check_counts(call, call.input.count * ranks(), call.output.count);
        return call;
    }

    template <class In, class Out>
    [[nodiscard]] Collective scatter_call(In& input, Out& output, int root) const {
        const Collective call = rooted_call_on(Verb::scatter, input, output, root);
        if (rank() == root) check_counts(call, call.output.count * ranks(), call.input.count);
        return call;
    }

    template <class In, class Out>
    [[nodiscard]] Collective reduce_scatter_call(In& input, Out& output,
                                                 const ReduceOperationOn<Out>& operation) const {
        Collective call = call_on(Verb::reduce_scatter, input, output);
        call.reduction = operation.reduction();
        check_reduction(call.input.dtype, call.reduction);
        check_counts(call, call.output.count * ranks(), call.input.count);
        return call;
    }

    template <class In, class Out>
    [[nodiscard]] Collective all_to_all_call(In& input, Out& output) const {
        const Collective call = call_on(Verb::all_to_all, input, output);
        check_counts(call, call.input.count, call.output.count);
        check_counts(call, call.input.count / ranks() * ranks(), call.input.count);
        return call;
    }

    [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(size()); }

    void check_counts(const Collective& call, std::size_t expected, std::size_t found) const {
        if (expected == found) return;
        throw ArgumentError(detail::text("rank ", rank(), " of ", size(), ": ", verb_name(call.verb), " of ",
                                         call.input.count, " elements into ", call.output.count,
                                         ": there must be ", expected, " and not ", found));
    }
};

}  // namespace DPTK_NAMESPACE
