/// The typed collectives: all_reduce, broadcast, all_gather and so on, on contiguous ranges of elements.
/// Communicators and ProcessGroup inherit them, so that each verb is defined once.
///
/// All of these verbs are collective: every rank of the group makes the same calls in the same order, from
/// one thread at a time. A blocking call returns when this rank's buffers may be used again. The buffers of
/// an _async call must live until its Work is done, and cannot be owning temporaries; the memory of an
/// Allocation is kept alive automatically. Invalid counts, roots and operations are detected on the rank that
/// passes them, which throws ArgumentError. Arguments that differ between ranks are detected if
/// DPTK_DEBUG=detail is set.
///
/// The elements of a call must lie in host memory, or all on one device. A call on device memory is ordered
/// in `options.stream`: it starts after the stream's earlier work, and the stream's later work waits for the
/// result of the call. Over NCCL the host does not wait: a blocking call returns when the call has been
/// enqueued on the GPU, and its error is thrown by the next call, or by Work::wait().
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

#include "dptk/comm/allocation.hpp"
#include "dptk/comm/call_options.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/engine/engine_owner.hpp"
#include "dptk/comm/ranges.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The gathered elements of all ranks. The number of elements may differ between ranks.
template <Element T>
struct UnevenElements {
    /// The elements, in rank order.
    std::vector<T> elements;
    /// The number of elements of each rank.
    std::vector<std::size_t> counts;

    /// Returns a view of one rank's elements, which is valid until `elements` changes.
    [[nodiscard]] std::span<const T> of(int rank) const {
        const auto begin = counts.begin();
        const std::size_t first = std::accumulate(begin, begin + rank, std::size_t{0});
        return std::span(elements).subspan(first, counts[static_cast<std::size_t>(rank)]);
    }
};

/// The collectives of BasicCommunicator and ProcessGroup. Every rank of the group makes the same calls in the
/// same order. A verb that ends in _async starts its call, which runs in the background. Until its Work is
/// done, the program must not write the call's input, must not read or write its output, and must keep both
/// alive; the memory of an Allocation is kept alive automatically.
///
/// `Self` provides engine(), which returns the Engine that executes the calls.
template <class Self>
class CollectiveVerbs {
  public:
    /// Returns this process's rank in the group, in [0, size() - 1].
    [[nodiscard]] int rank() const { return engine().rank(); }

    /// Returns the number of ranks in the group.
    [[nodiscard]] int size() const { return engine().size(); }

    /// Returns this process's position among the group's ranks on its host.
    [[nodiscard]] int local_rank() const { return engine().local_rank(); }

    /// Returns the number of the group's ranks on this host.
    [[nodiscard]] int local_size() const { return engine().local_size(); }

    /// Returns the transport's name, such as "mpi", "threads" or "self".
    [[nodiscard]] std::string backend() const { return engine().backend(); }

    /// Combines the elements of all ranks, elementwise and in place. Every rank gets bitwise identical
    /// results. `operation` is a ReduceOp, a WeightedSum or a function. All ranks must pass the same count.
    /// Blocks.
    template <MutableElementRange R>
    void all_reduce(R&& data, const ReduceOperationOn<R>& operation = ReduceOp::sum,
                    const CallOptions& options = {}) {
        run(all_reduce_call(data, data, operation), options);
    }

    /// Overload for a sum with options: group.all_reduce(data, {.stream = stream}).
    template <MutableElementRange R>
    void all_reduce(R&& data, const CallOptions& options) {
        all_reduce(data, ReduceOp::sum, options);
    }

    /// Combines the elements of all ranks, elementwise, and writes the result to `output`. `output` must have
    /// the same count as `input`, and may be `input`. Blocks.
    template <ElementRange In, MutableElementRange Out>
    void all_reduce(In&& input, Out&& output, const ReduceOperationOn<Out>& operation = ReduceOp::sum,
                    const CallOptions& options = {}) {
        run(all_reduce_call(input, output, operation), options);
    }

    /// Starts all_reduce(data, operation). `data` holds the result when the Work is done, and must live until
    /// then.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work all_reduce_async(R&& data, const ReduceOperationOn<R>& operation = ReduceOp::sum,
                                        const CallOptions& options = {}) {
        return start(all_reduce_call(data, data, operation), options, data, operation);
    }

    /// Overload for a sum with options.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work all_reduce_async(R&& data, const CallOptions& options) {
        return all_reduce_async(data, ReduceOp::sum, options);
    }

    /// Starts all_reduce(input, output, operation). `input` and `output` must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work all_reduce_async(In&& input, Out&& output,
                                        const ReduceOperationOn<Out>& operation = ReduceOp::sum,
                                        const CallOptions& options = {}) {
        return start(all_reduce_call(input, output, operation), options, input, output, operation);
    }

    /// Performs an all_reduce of one value and returns the result. Blocks.
    template <Element T>
    [[nodiscard]] T all_reduce_value(
        T value, const ReduceOperation<std::type_identity_t<T>>& operation = ReduceOp::sum) {
        all_reduce(std::span<T>(&value, 1), operation);
        return value;
    }

    /// Combines the elements of all ranks, elementwise, into the root's `data`. Other ranks' elements are
    /// unchanged. All ranks must pass the same count. Blocks.
    template <MutableElementRange R>
    void reduce(R&& data, int root = 0, const ReduceOperationOn<R>& operation = ReduceOp::sum,
                const CallOptions& options = {}) {
        run(reduce_call(data, data, root, operation), options);
    }

    /// Combines the elements of all ranks, elementwise, into the root's `output`, which must have the same
    /// count as `input`. The other ranks' `output` is ignored. Blocks.
    template <ElementRange In, MutableElementRange Out>
    void reduce(In&& input, Out&& output, int root = 0,
                const ReduceOperationOn<Out>& operation = ReduceOp::sum, const CallOptions& options = {}) {
        run(reduce_call(input, output, root, operation), options);
    }

    /// Starts reduce(data, root, operation). `data` must live until the Work is done.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work reduce_async(R&& data, int root = 0,
                                    const ReduceOperationOn<R>& operation = ReduceOp::sum,
                                    const CallOptions& options = {}) {
        return start(reduce_call(data, data, root, operation), options, data, operation);
    }

    /// Starts reduce(input, output, root, operation). `input` and `output` must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work reduce_async(In&& input, Out&& output, int root = 0,
                                    const ReduceOperationOn<Out>& operation = ReduceOp::sum,
                                    const CallOptions& options = {}) {
        return start(reduce_call(input, output, root, operation), options, input, output, operation);
    }

    /// Sends the root's elements to all ranks, in place. All ranks must pass the same count. Blocks.
    template <MutableElementRange R>
    void broadcast(R&& data, int root = 0, const CallOptions& options = {}) {
        run(broadcast_call(data, root), options);
    }

    /// Starts broadcast(data, root). `data` must live until the Work is done.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work broadcast_async(R&& data, int root = 0, const CallOptions& options = {}) {
        return start(broadcast_call(data, root), options, data);
    }

    /// Gathers the inputs of all ranks in `output`, in rank order. `output` must have size() times as many
    /// elements as `input`; all ranks must pass the same count. `input` may be this rank's part of `output`.
    /// Blocks.
    template <ElementRange In, MutableElementRange Out>
    void all_gather(In&& input, Out&& output, const CallOptions& options = {}) {
        run(all_gather_call(input, output), options);
    }

    /// Starts all_gather(input, output). Both must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work all_gather_async(In&& input, Out&& output, const CallOptions& options = {}) {
        return start(all_gather_call(input, output), options, input, output);
    }

    /// Gathers inputs of different counts in `output`, in rank order, as MPI_Allgatherv does. Rank i
    /// contributes counts[i] elements, and `output` must have as many elements as all inputs together. All
    /// ranks must pass the same counts. Blocks.
    template <ElementRange In, MutableElementRange Out>
    void all_gather(In&& input, Out&& output, std::span<const std::size_t> counts,
                    const CallOptions& options = {}) {
        run(all_gather_uneven_call(input, output, counts), options);
    }

    /// Starts all_gather(input, output, counts). Input and output must live until the Work is done; `counts`
    /// is copied.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work all_gather_async(In&& input, Out&& output, std::span<const std::size_t> counts,
                                        const CallOptions& options = {}) {
        const auto kept = std::make_shared<const std::vector<std::size_t>>(counts.begin(), counts.end());
        return start(all_gather_uneven_call(input, output, *kept), options, input, output,
                     std::shared_ptr<const void>(kept));
    }

    /// Gathers inputs whose counts may differ and are unknown to the other ranks. Makes two collective calls,
    /// the first of which exchanges the counts. Blocks.
    template <HostRange In>
    [[nodiscard]] auto all_gather_uneven(In&& input) {
        using T = ElementIn<In>;
        static_assert(!std::same_as<T, bool>,
                      "bool cannot be gathered into a std::vector<bool>: gather std::uint8_t");
        UnevenElements<T> all;
        all.counts = all_gather_value(static_cast<std::size_t>(std::ranges::size(input)));
        all.elements.resize(std::accumulate(all.counts.begin(), all.counts.end(), std::size_t{0}));
        all_gather(input, all.elements, all.counts);
        return all;
    }

    /// Returns the values of all ranks, in rank order. Blocks.
    template <class T>
        requires Element<T> || detail::ViewOfMemory<T>
    [[nodiscard]] std::vector<T> all_gather_value(T value) {
        detail::refuse_views<T>();
        if constexpr (std::same_as<T, bool>) {  // std::vector<bool> is not a contiguous range
            const auto bytes = all_gather_value(static_cast<std::uint8_t>(value));
            return {bytes.begin(), bytes.end()};
        } else {
            std::vector<T> values(static_cast<std::size_t>(size()));
            all_gather(std::span<const T>(&value, 1), values);
            return values;
        }
    }

    /// Gathers the inputs of all ranks in the root's `output`, in rank order. The root's `output` must have
    /// size() times as many elements as `input`; the other ranks' `output` is ignored. All ranks must pass
    /// the same count. The root's `input` may be the root's part of its `output`. Blocks.
    template <ElementRange In, MutableElementRange Out>
    void gather(In&& input, Out&& output, int root = 0, const CallOptions& options = {}) {
        run(gather_call(input, output, root), options);
    }

    /// Starts gather(input, output, root). `input` and `output` must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work gather_async(In&& input, Out&& output, int root = 0, const CallOptions& options = {}) {
        return start(gather_call(input, output, root), options, input, output);
    }

    /// Sends part i of the root's `input` to rank i's `output`. The root's `input` must have size() times as
    /// many elements as `output`; the other ranks' `input` is ignored. All ranks must pass the same count.
    /// The root's `output` may be the root's part of its `input`. Blocks.
    template <ElementRange In, MutableElementRange Out>
    void scatter(In&& input, Out&& output, int root = 0, const CallOptions& options = {}) {
        run(scatter_call(input, output, root), options);
    }

    /// Starts scatter(input, output, root). `input` and `output` must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work scatter_async(In&& input, Out&& output, int root = 0,
                                     const CallOptions& options = {}) {
        return start(scatter_call(input, output, root), options, input, output);
    }

    /// Combines the inputs of all ranks, elementwise, and writes this rank's part of the result to `output`.
    /// `input` must have size() times as many elements as `output`. `input` is unchanged, unless `output` is
    /// this rank's part of `input`. All ranks must pass the same count. Blocks.
    template <ElementRange In, MutableElementRange Out>
    void reduce_scatter(In&& input, Out&& output, const ReduceOperationOn<Out>& operation = ReduceOp::sum,
                        const CallOptions& options = {}) {
        run(reduce_scatter_call(input, output, operation), options);
    }

    /// Starts reduce_scatter(input, output, operation). `input` and `output` must live until the Work is
    /// done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work reduce_scatter_async(In&& input, Out&& output,
                                            const ReduceOperationOn<Out>& operation = ReduceOp::sum,
                                            const CallOptions& options = {}) {
        return start(reduce_scatter_call(input, output, operation), options, input, output, operation);
    }

    /// Sends part i of this rank's `input` to part rank() of rank i's `output`. Both must have the same
    /// count, a multiple of size(), on all ranks. `output` may be `input`. Blocks.
    template <ElementRange In, MutableElementRange Out>
    void all_to_all(In&& input, Out&& output, const CallOptions& options = {}) {
        run(all_to_all_call(input, output), options);
    }

    /// Starts all_to_all(input, output). Both must live until the Work is done.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work all_to_all_async(In&& input, Out&& output, const CallOptions& options = {}) {
        return start(all_to_all_call(input, output), options, input, output);
    }

    /// Sends input_counts[i] elements of `input`, in rank order, to rank i, and receives output_counts[i]
    /// elements from rank i in `output`, as MPI_Alltoallv does without gaps. input_counts[i] on rank j must
    /// be output_counts[j] on rank i; counts may be 0. If they differ, the receiving rank throws
    /// MismatchError, or BackendError over MPI, and the group cannot be used any more. Blocks.
    template <ElementRange In, MutableElementRange Out>
    void all_to_all(In&& input, Out&& output, std::span<const std::size_t> input_counts,
                    std::span<const std::size_t> output_counts, const CallOptions& options = {}) {
        run(all_to_all_uneven_call(input, output, input_counts, output_counts), options);
    }

    /// Starts all_to_all(input, output, input_counts, output_counts). Input and output must live until the
    /// Work is done; the counts are copied.
    template <ElementRange In, MutableElementRange Out>
        requires OutlivesCall<In> && OutlivesCall<Out>
    [[nodiscard]] Work all_to_all_async(In&& input, Out&& output, std::span<const std::size_t> input_counts,
                                        std::span<const std::size_t> output_counts,
                                        const CallOptions& options = {}) {
        const auto kept =
            std::make_shared<std::vector<std::size_t>>(input_counts.begin(), input_counts.end());
        kept->insert(kept->end(), output_counts.begin(), output_counts.end());
        const std::span<const std::size_t> all(*kept);
        return start(all_to_all_uneven_call(input, output, all.first(input_counts.size()),
                                            all.subspan(input_counts.size())),
                     options, input, output, std::shared_ptr<const void>(kept));
    }

    /// Blocks until all ranks have called barrier(). First waits for all collectives that were started
    /// earlier, and for all messages whose Work was dropped. The peer of such a message must start the
    /// matching send or recv before the peer's own barrier. Throws the error of an operation whose Work was
    /// dropped.
    void barrier() { run({}, {}); }

    /// Starts a barrier. The Work is done when all ranks have started the barrier.
    [[nodiscard]] Work barrier_async() { return start({}, {}); }

    /// A barrier that reports missing ranks, like torch.distributed.monitored_barrier. Blocks for at most
    /// `timeout`. If ranks are missing by then, the waiting ranks throw a TimeoutError that names the missing
    /// ranks; each missing rank throws this error when it calls monitored_barrier later. The error is agreed:
    /// the group stays usable. monitored_barrier is slower than barrier(). Throws ArgumentError if the
    /// transport has no control plane.
    void monitored_barrier(std::chrono::milliseconds timeout) { engine().monitored_barrier(timeout); }
    /// Overload that uses the group's timeout.
    void monitored_barrier() { monitored_barrier(engine().identity().timeout); }

    /// Sets the algorithm of subsequent all_reduce calls. All ranks must set the same one. Does not
    /// communicate.
    void set_all_reduce_algorithm(AllReduceAlgorithm algorithm) { engine().set_algorithm(algorithm); }

    /// Allocates `count` elements. If the transport provides memory that it accesses without a copy,
    /// allocates such memory. Collective; all ranks must pass the same count.
    template <Element T>
    [[nodiscard]] Allocation<T> allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw ArgumentError(detail::text("rank ", rank(), ": allocate of ", count, " elements of ",
                                             sizeof(T), " bytes exceeds the address space"));
        }
        return {engine().allocate(count * sizeof(T)), count};
    }

    /// Allocates `count` elements in the memory of the current CUDA device. Collective; all ranks must pass
    /// the same count. Throws ArgumentError if the group supports only host memory.
    template <Element T>
    [[nodiscard]] DeviceAllocation<T> allocate_on_device(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw ArgumentError(detail::text("rank ", rank(), ": allocate_on_device of ", count,
                                             " elements of ", sizeof(T), " bytes exceeds the address space"));
        }
        return {engine().allocate_on_device(count * sizeof(T)), count};
    }

  private:
    [[nodiscard]] auto& engine() { return static_cast<Self&>(*this).engine(); }
    [[nodiscard]] const auto& engine() const { return static_cast<const Self&>(*this).engine(); }

    static void apply(const CallOptions& options, Collective& call) {
        call.stream = options.stream;
        call.algorithm = options.algorithm;
        call.timeout = options.timeout;
    }

    void run(Collective&& call, const CallOptions& options) {
        apply(options, call);
        engine().run(call);
    }

    template <class... Owners>
    [[nodiscard]] Work start(Collective&& call, const CallOptions& options, const Owners&... owners) {
        apply(options, call);
        return engine().start(call, detail::owner_of_all(owners...));
    }

    template <class In, class Out>
    [[nodiscard]] static Collective call_on(Verb verb, In& input, Out& output) {
        static_assert(detail::SameElements<In, Out>, "input and output have different element types");
        // Members are assigned one by one. From an initializer list, GCC would clear the object and copy
        // temporaries, which costs 30 ns per call.
        Collective call;
        call.verb = verb;
        detail::set_buffer(call.input, input);
        detail::set_buffer(call.output, output);
        if (call.input.device != call.output.device && call.input.count != 0 && call.output.count != 0)
            detail::refuse_devices(call);
        return call;
    }

    template <class In, class Out>
    [[nodiscard]] Collective rooted_call_on(Verb verb, In& input, Out& output, int root) const {
        Collective call = call_on(verb, input, output);
        call.root = root;
        if (root < 0 || root >= size()) detail::refuse_root(call, rank(), size());
        return call;
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
        if (counts.size() != ranks()) detail::refuse_counts(call.verb, counts.size(), rank(), size());
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

    template <class In, class Out>
    [[nodiscard]] Collective all_to_all_uneven_call(In& input, Out& output,
                                                    std::span<const std::size_t> input_counts,
                                                    std::span<const std::size_t> output_counts) const {
        Collective call = call_on(Verb::all_to_all_uneven, input, output);
        call.counts = input_counts;
        call.output_counts = output_counts;
        check_parts(call.verb, "input", input_counts, call.input.count);
        check_parts(call.verb, "output", output_counts, call.output.count);
        return call;
    }

    void check_parts(Verb verb, const char* buffer, std::span<const std::size_t> counts,
                     std::size_t found) const {
        if (counts.size() != ranks()) detail::refuse_counts(verb, counts.size(), rank(), size());
        const std::size_t expected = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
        if (expected != found) detail::refuse_sum(verb, buffer, expected, found, rank());
    }

    [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(size()); }

    void check_counts(const Collective& call, std::size_t expected, std::size_t found) const {
        if (expected != found) detail::refuse_count(call, expected, found, rank(), size());
    }
};

}  // namespace DPTK_NAMESPACE
