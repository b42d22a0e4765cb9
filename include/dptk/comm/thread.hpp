/// Ranks that are threads of one process: for tests, for machines with several sockets or devices, and for
/// programs that cannot be several processes. launch_threads(n, fn) runs fn as n ranks.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms/slices.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/thread_hub.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/control/in_process_store.hpp"

namespace dptk {

/// Collectives work directly in the ranks' memory: all_reduce gives each rank a slice of all buffers to sum,
/// in rank order, and to write back. A call that differs between ranks is a MismatchError on all of them.
class ThreadTransport {
  public:
    static constexpr bool interruptible = true;

    /// The rank of `control`, among those that share `hub`. Made by launch_threads.
    ThreadTransport(std::shared_ptr<detail::ThreadHub> hub, std::shared_ptr<ControlPlane> control)
        : hub_(std::move(hub)), control_(std::move(control)), rank_(control_->rank()) {}

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return hub_->size(); }
    [[nodiscard]] int local_rank() const noexcept { return rank_; }
    [[nodiscard]] int local_size() const noexcept { return hub_->size(); }
    [[nodiscard]] std::string_view backend() const noexcept { return "threads"; }
    [[nodiscard]] std::shared_ptr<ControlPlane> control() const { return control_; }

    void send(const Buffer& buffer, int to, int tag) { complete({Verb::send, buffer, to, tag}); }
    void recv(const Buffer& buffer, int from, int tag) { complete({Verb::recv, buffer, from, tag}); }

    [[nodiscard]] int recv_any(const Buffer& buffer, int tag) {
        return complete({Verb::recv, buffer, any_rank, tag});
    }

    void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
        const std::shared_ptr<WorkState> sent = start({Verb::send, out, to, tag});
        try {
            recv(in, from, tag);
        } catch (...) {
            hub_->mailbox().withdraw(*sent);  // nobody may read `out` any more
            throw;
        }
        Work(sent).wait();
    }

    [[nodiscard]] std::shared_ptr<WorkState> start(const Message& message) {
        return hub_->mailbox().post(rank_, message);
    }

    /// All reductions are carried out here, in rank order and rounded once.
    [[nodiscard]] static bool reduces(DType, const Reduction&) noexcept { return true; }

    void all_reduce(const Buffer& data, const Reduction& reduction) {
        together({Verb::all_reduce, data, data, reduction, 0, {}}, [&](const Calls& calls) {
            const std::size_t first = slice_begin(rank_, data.count);
            const std::size_t count = slice_begin(rank_ + 1, data.count) - first;
            std::vector<void*> results;
            for (const Collective& call : calls) results.push_back(call.output.slice(first, count).data);
            reduce_slice(calls, first, data.slice(first, count), reduction, results);
        });
    }

    void reduce(const Buffer& data, const Reduction& reduction, int root) {
        together({Verb::reduce, data, data, reduction, root, {}}, [&](const Calls& calls) {
            const std::size_t first = slice_begin(rank_, data.count);
            const std::size_t count = slice_begin(rank_ + 1, data.count) - first;
            void* const result = call_of(calls, root).output.slice(first, count).data;
            reduce_slice(calls, first, data.slice(first, count), reduction, {&result, 1});
        });
    }

    void reduce_scatter(const Buffer& input, const Buffer& output, const Reduction& reduction) {
        // The output may lie in the input, which others read meanwhile.
        const algorithms::Scratch result(output);
        together({Verb::reduce_scatter, input, output, reduction, 0, {}}, [&](const Calls& calls) {
            const std::size_t first = static_cast<std::size_t>(rank_) * output.count;
            reduce_slice(calls, first, output, reduction, {&result.buffer().data, 1});
        });
        copy(output, result.buffer());
    }

    void broadcast(const Buffer& data, int root) {
        together({Verb::broadcast, data, data, {}, root, {}}, [&](const Calls& calls) {
            if (rank_ != root) copy(data, call_of(calls, root).input);
        });
    }

    void all_gather(const Buffer& input, const Buffer& output) {
        together({Verb::all_gather, input, output, {}, 0, {}},
                 [&](const Calls& calls) { collect(calls, output); });
    }

    void all_gather_uneven(const Buffer& input, const Buffer& output, std::span<const std::size_t> counts) {
        together({Verb::all_gather_uneven, input, output, {}, 0, counts},
                 [&](const Calls& calls) { collect(calls, output); });
    }

    void gather(const Buffer& input, const Buffer& output, int root) {
        together({Verb::gather, input, output, {}, root, {}}, [&](const Calls& calls) {
            if (rank_ == root) collect(calls, output);
        });
    }

    void scatter(const Buffer& input, const Buffer& output, int root) {
        together({Verb::scatter, input, output, {}, root, {}}, [&](const Calls& calls) {
            take(output, call_of(calls, root).input.slice(own_place(output.count), output.count));
        });
    }

    void all_to_all(const Buffer& input, const Buffer& output) {
        together({Verb::all_to_all, input, output, {}, 0, {}}, [&](const Calls& calls) {
            const std::size_t count = input.count / calls.size();
            for (std::size_t i = 0; i < calls.size(); ++i)
                copy(output.slice(i * count, count), calls[i].input.slice(own_place(count), count));
        });
    }

    void barrier() {
        together({}, [](const Calls&) {});
    }

    [[nodiscard]] ThreadTransport duplicate() {
        together({.verb = Verb::duplicate}, [](const Calls&) {});
        return {hub_->part(detail::text("duplicate ", duplicates_++), size()), control_, rank_};
    }

    /// The ranks of a part need not meet the others.
    [[nodiscard]] ThreadTransport subgroup(std::span<const int> ranks, std::string_view name) {
        const auto position = std::ranges::find(ranks, rank_) - ranks.begin();
        return {hub_->part(name, static_cast<int>(ranks.size())), control_, static_cast<int>(position)};
    }

    void leave() noexcept { hub_->leave(rank_); }

  private:
    using Calls = std::vector<Collective>;

    ThreadTransport(std::shared_ptr<detail::ThreadHub> hub, std::shared_ptr<ControlPlane> control, int rank)
        : hub_(std::move(hub)), control_(std::move(control)), rank_(rank) {}

    int complete(const Message& message) {
        Work work(start(message));
        work.wait();
        return work.source_rank();
    }

    /// Meets the other ranks, checks that all make the same call, and works in everybody's memory.
    template <class Action>
    void together(const Collective& call, Action&& action) {
        hub_->meet(rank_, call);
        std::string difference;
        std::exception_ptr failure;
        try {
            difference = find_difference();
            if (difference.empty()) action(hub_->calls());
        } catch (...) {  // the others wait for finish()
            failure = std::current_exception();
            hub_->spoil();
        }
        hub_->finish();
        if (failure) std::rethrow_exception(failure);
        hub_->check_complete();
        if (difference.empty()) return;
        MismatchError error(difference);
        error.mark_agreed();
        throw error;
    }

    [[nodiscard]] std::string find_difference() const {
        const std::vector<Collective>& calls = hub_->calls();
        for (std::size_t other = 1; other < calls.size(); ++other) {
            if (!agree(calls[0], calls[other])) {
                return detail::text("rank ", other, " calls ", describe(calls[other]), " where rank 0 calls ",
                                    describe(calls[0]));
            }
        }
        return {};
    }

    [[nodiscard]] std::size_t slice_begin(int slice, std::size_t count) const noexcept {
        const auto parts = static_cast<std::size_t>(size());
        return count / parts * static_cast<std::size_t>(slice) +
               std::min(count % parts, static_cast<std::size_t>(slice));
    }

    /// Combines one slice of all ranks' inputs, from element `first` on and as `slice` tells.
    static void reduce_slice(const Calls& calls, std::size_t first, const Buffer& slice,
                             const Reduction& reduction, std::span<void* const> results) {
        std::vector<const void*> sources;
        for (const Collective& call : calls) sources.push_back(call.input.slice(first, slice.count).data);
        detail::reduce_together({sources, results, slice.count, static_cast<double>(calls.size())}, slice,
                                slice.dtype, reduction);
    }

    [[nodiscard]] static const Collective& call_of(const Calls& calls, int rank) {
        return calls[static_cast<std::size_t>(rank)];
    }

    [[nodiscard]] std::size_t own_place(std::size_t count) const noexcept {
        return static_cast<std::size_t>(rank_) * count;
    }

    /// output = the inputs of all ranks, one after the other.
    static void collect(const Calls& calls, const Buffer& output) {
        std::size_t first = 0;
        for (const Collective& call : calls) {
            take(output.slice(first, call.input.count), call.input);
            first += call.input.count;
        }
    }

    static void take(const Buffer& to, const Buffer& from) {
        if (to.data != from.data) copy(to, from);
    }

    static void copy(const Buffer& to, const Buffer& from) {
        if (from.bytes() != 0) std::memcpy(to.data, from.data, from.bytes());
    }

    std::shared_ptr<detail::ThreadHub> hub_;
    std::shared_ptr<ControlPlane> control_;
    int rank_;
    int duplicates_ = 0;
};

/// One rank that is a thread. launch_threads makes them, and gives fn each as a ProcessGroup.
using ThreadCommunicator = BasicCommunicator<ThreadTransport>;

/// Options of launch_threads.
struct ThreadOptions {
    /// How long a call waits for other ranks before it throws TimeoutError.
    std::chrono::milliseconds timeout = default_timeout;
};

namespace detail {

/// What the ranks of one launch_threads share.
struct ThreadJob {
    ThreadJob(int size_, ThreadOptions options_) : size(size_), options(options_) {}

    int size;
    ThreadOptions options;
    std::shared_ptr<JobHealth> health = std::make_shared<JobHealth>();
    std::shared_ptr<ThreadHub> hub = ThreadHub::make(size, health);
    std::shared_ptr<Store> store = std::make_shared<InProcessStore>();

    [[nodiscard]] ThreadTransport transport(int rank) const {
        return {hub, ControlPlane::make(
                         {.rank = rank, .size = size, .store = store, .timeout = options.timeout}, health)};
    }
};

}  // namespace detail

/// Runs fn(ProcessGroup&) as `size` ranks, one thread each, and returns when all have ended.
///
/// An exception that leaves fn on one rank ends the others' waits: they throw PeerLostError with its text.
/// When all have ended, the first exception that is not such a consequence is rethrown here. Throws
/// ArgumentError for a size below 1.
template <class Fn>
void launch_threads(int size, Fn&& fn, ThreadOptions options = {}) {
    if (size < 1) throw ArgumentError(detail::text("launch_threads with ", size, " ranks"));
    const detail::ThreadJob job(size, options);
    std::mutex mutex;
    std::exception_ptr cause;
    std::exception_ptr consequence;

    const auto run_rank = [&](int rank) {
        std::optional<ProcessGroup> group;  // closes after its rank's failure is known
        const auto failed = [&](const std::exception_ptr& error, bool is_consequence, std::string_view what) {
            {
                const std::lock_guard lock(mutex);
                std::exception_ptr& first = is_consequence ? consequence : cause;
                if (!first) first = error;
            }
            job.health->fail(detail::text("rank ", rank, ": ", what));
        };
        try {
            group.emplace(ThreadCommunicator(job.transport(rank)));
            fn(*group);
        } catch (const PeerLostError& error) {
            failed(std::current_exception(), true, error.what());
        } catch (const std::exception& error) {
            failed(std::current_exception(), false, error.what());
        } catch (...) {
            failed(std::current_exception(), false, "an exception that is no std::exception");
        }
    };

    {
        std::vector<std::jthread> threads;
        try {
            for (int rank = 0; rank < size; ++rank) threads.emplace_back(run_rank, rank);
        } catch (const std::exception& error) {  // those that run must not wait for the others
            job.health->fail(detail::text("rank ", threads.size(), " could not be started: ", error.what()));
            throw;
        }
    }
    if (cause) std::rethrow_exception(cause);
    if (consequence) std::rethrow_exception(consequence);
}

}  // namespace dptk
