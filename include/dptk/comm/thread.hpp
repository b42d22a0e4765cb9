/// Ranks that are threads of one process: for tests, for machines with several sockets or devices, and for
/// programs that cannot be several processes. launch_threads(n, fn) runs fn as n ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/thread/hub.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/store/in_process_store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Collectives work directly in the ranks' memory: all_reduce gives each rank a slice of all buffers to sum,
/// in rank order, and to write back. A call that differs between ranks is a MismatchError on all of them.
class ThreadTransport {
  public:
    static constexpr bool interruptible = true;

    /// The rank of `control`, among those that share `hub`. Made by launch_threads.
    ThreadTransport(std::shared_ptr<detail::ThreadHub> hub, std::shared_ptr<detail::ControlPlane> control);

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return hub_->size(); }
    [[nodiscard]] int local_rank() const noexcept { return rank_; }
    [[nodiscard]] int local_size() const noexcept { return hub_->size(); }
    [[nodiscard]] std::string_view backend() const noexcept { return "threads"; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const { return control_; }

    void send(const Buffer& buffer, int to, int tag) { complete({Verb::send, buffer, to, tag}); }
    void recv(const Buffer& buffer, int from, int tag) { complete({Verb::recv, buffer, from, tag}); }

    [[nodiscard]] int recv_any(const Buffer& buffer, int tag);

    void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag);

    [[nodiscard]] std::shared_ptr<WorkState> start(const Message& message);

    /// All reductions are carried out here, in rank order and rounded once.
    [[nodiscard]] static bool reduces(DType, const Reduction&) noexcept { return true; }

    void all_reduce(const Buffer& data, const Reduction& reduction);

    void reduce(const Buffer& data, const Reduction& reduction, int root);

    void reduce_scatter(const Buffer& input, const Buffer& output, const Reduction& reduction);

    void broadcast(const Buffer& data, int root);

    void all_gather(const Buffer& input, const Buffer& output);

    void all_gather_uneven(const Buffer& input, const Buffer& output, std::span<const std::size_t> counts);

    void gather(const Buffer& input, const Buffer& output, int root);

    void scatter(const Buffer& input, const Buffer& output, int root);

    void all_to_all(const Buffer& input, const Buffer& output);

    void barrier();

    [[nodiscard]] ThreadTransport duplicate();

    /// The ranks of a part need not meet the others.
    [[nodiscard]] ThreadTransport subgroup(std::span<const int> ranks, std::string_view name);

    void leave() noexcept { hub_->leave(rank_); }

  private:
    using Calls = std::vector<Collective>;

    ThreadTransport(std::shared_ptr<detail::ThreadHub> hub, std::shared_ptr<detail::ControlPlane> control,
                    int rank);

    int complete(const Message& message);

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

    [[nodiscard]] std::string find_difference() const;

    [[nodiscard]] std::size_t slice_begin(int slice, std::size_t count) const noexcept;

    /// Combines one slice of all ranks' inputs, from element `first` on and as `slice` tells.
    static void reduce_slice(const Calls& calls, std::size_t first, const Buffer& slice,
                             const Reduction& reduction, std::span<void* const> results);

    [[nodiscard]] static const Collective& call_of(const Calls& calls, int rank);

    [[nodiscard]] std::size_t own_place(std::size_t count) const noexcept;

    /// output = the inputs of all ranks, one after the other.
    static void collect(const Calls& calls, const Buffer& output);

    static void take(const Buffer& to, const Buffer& from);

    static void copy(const Buffer& to, const Buffer& from);

    std::shared_ptr<detail::ThreadHub> hub_;
    std::shared_ptr<detail::ControlPlane> control_;
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
    std::shared_ptr<JobState> job_state = std::make_shared<JobState>();
    std::shared_ptr<ThreadHub> hub = ThreadHub::make(size, job_state);
    std::shared_ptr<Store> store = std::make_shared<InProcessStore>();

    [[nodiscard]] ThreadTransport transport(int rank) const;
};

/// launch_threads of any function.
void run_as_threads(int size, const std::function<void(ProcessGroup&)>& fn, ThreadOptions options);

}  // namespace detail

/// Runs fn(ProcessGroup&) as `size` ranks, one thread each, and returns when all have ended.
///
/// An exception that leaves fn on one rank ends the others' waits: they throw PeerLostError with its text.
/// When all have ended, the first exception that is not such a consequence is rethrown here. Throws
/// ArgumentError for a size below 1.
template <class Fn>
void launch_threads(int size, Fn&& fn, ThreadOptions options = {}) {
    detail::run_as_threads(
        size, [&fn](ProcessGroup& group) { static_cast<void>(fn(group)); }, options);
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/thread.ipp"
#endif
