/// Ranks that are threads of one process: for tests, for machines with several sockets or devices, and for
/// programs that cannot be several processes. launch_threads(n, fn) runs fn as n ranks.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

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

    ThreadTransport(std::shared_ptr<detail::ThreadHub> hub, std::shared_ptr<ControlPlane> control)
        : hub_(std::move(hub)), control_(std::move(control)), rank_(control_->rank()) {}

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return hub_->size(); }
    [[nodiscard]] int local_rank() const noexcept { return rank_; }
    [[nodiscard]] int local_size() const noexcept { return hub_->size(); }
    [[nodiscard]] std::string_view backend() const noexcept { return "threads"; }
    [[nodiscard]] std::shared_ptr<ControlPlane> control() const { return control_; }

    void send(const Buffer& buffer, int to, int tag) { hub_->send(rank_, to, tag, buffer); }
    void recv(const Buffer& buffer, int from, int tag) { hub_->recv(from, rank_, tag, buffer); }

    void all_reduce(const Buffer& data, ReduceOp op) {
        together({Verb::all_reduce, data, data, op, 0}, [&](const std::vector<Collective>& calls) {
            const std::size_t first = slice_begin(rank_, data.count);
            reduce_slice(calls, data.slice(first, slice_begin(rank_ + 1, data.count) - first), first, op);
        });
    }

    void broadcast(const Buffer& data, int root) {
        together({Verb::broadcast, data, data, ReduceOp::sum, root},
                 [&](const std::vector<Collective>& calls) {
                     if (rank_ != root) copy(data, calls[static_cast<std::size_t>(root)].input);
                 });
    }

    void all_gather(const Buffer& input, const Buffer& output) {
        together({Verb::all_gather, input, output, ReduceOp::sum, 0},
                 [&](const std::vector<Collective>& calls) {
                     for (std::size_t i = 0; i < calls.size(); ++i) {
                         const Buffer part = output.slice(i * input.count, input.count);
                         if (part.data != calls[i].input.data) copy(part, calls[i].input);
                     }
                 });
    }

    void barrier() {
        together({}, [](const std::vector<Collective>&) {});
    }

    [[nodiscard]] ThreadTransport duplicate() {
        std::shared_ptr<void> copy;
        together({.verb = Verb::duplicate}, [&](const std::vector<Collective>&) {
            if (rank_ == 0) hub_->handed_over() = detail::ThreadHub::make(size(), hub_->health());
        });
        together({.verb = Verb::duplicate},
                 [&](const std::vector<Collective>&) { copy = hub_->handed_over(); });
        return {std::static_pointer_cast<detail::ThreadHub>(copy), control_};
    }

    void leave() noexcept { hub_->leave(rank_); }

  private:
    /// Meets the other ranks, checks that all make the same call, and works in everybody's memory.
    template <class Action>
    void together(const Collective& call, Action&& action) {
        hub_->meet(rank_, call);
        const std::string difference = find_difference();
        if (difference.empty()) action(hub_->calls());
        hub_->finish();
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

    /// Sums one slice of all ranks' buffers, piece by piece in the cache, and writes it back to all.
    void reduce_slice(const std::vector<Collective>& calls, const Buffer& slice, std::size_t first,
                      ReduceOp op) const {
        alignas(64) std::array<std::byte, 16384> memory;
        const std::size_t step = memory.size() / dtype_size(slice.dtype);
        for (std::size_t done = 0; done < slice.count; done += step) {
            const std::size_t count = std::min(step, slice.count - done);
            const Buffer sum{memory.data(), count, slice.dtype, {}};
            copy(sum, calls[0].input.slice(first + done, count));
            for (std::size_t i = 1; i < calls.size(); ++i) {
                detail::combine(sum, calls[i].input.slice(first + done, count), op);
            }
            if (op == ReduceOp::avg) detail::divide(sum, size());
            for (const Collective& call : calls) copy(call.output.slice(first + done, count), sum);
        }
    }

    static void copy(const Buffer& to, const Buffer& from) {
        if (from.bytes() != 0) std::memcpy(to.data, from.data, from.bytes());
    }

    std::shared_ptr<detail::ThreadHub> hub_;
    std::shared_ptr<ControlPlane> control_;
    int rank_;
};

using ThreadCommunicator = BasicCommunicator<ThreadTransport>;

struct ThreadOptions {
    /// Of every call, before the ranks that wait throw TimeoutError.
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
        ProcessGroup group = ThreadCommunicator(job.transport(rank));
        const auto failed = [&](const std::exception_ptr& error, bool is_consequence, std::string_view what) {
            {
                const std::lock_guard lock(mutex);
                std::exception_ptr& first = is_consequence ? consequence : cause;
                if (!first) first = error;
            }
            job.health->fail(detail::text("rank ", rank, ": ", what));
        };
        try {
            fn(group);
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
