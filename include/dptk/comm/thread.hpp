/// Ranks as threads of one process: launch_threads(n, fn) runs fn in n threads, each of which is a rank. Use
/// it in tests, on machines with several sockets or devices, and in programs that must be one process.
/// launch_threads(group, n, fn) does so in each process of a group.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/thread/hub.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/store/in_process_store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/error_access.hpp"

namespace DPTK_NAMESPACE {

/// The transport between threads. Collectives access the other ranks' buffers directly. In all_reduce each
/// rank reduces one slice of all ranks' buffers, in rank order, and writes the result to the buffers of all
/// ranks. If the calls of the ranks differ, all ranks throw MismatchError.
class ThreadTransport final : public Transport {
  public:
    /// Creates the transport of one rank, which `control` identifies. All ranks share `hub`. launch_threads
    /// calls this constructor.
    ThreadTransport(std::shared_ptr<detail::ThreadHub> hub, std::shared_ptr<detail::ControlPlane> control);

    [[nodiscard]] int rank() const noexcept override { return rank_; }
    [[nodiscard]] int size() const noexcept override { return hub_->size(); }
    [[nodiscard]] int local_rank() const noexcept override { return rank_; }
    [[nodiscard]] int local_size() const noexcept override { return hub_->size(); }
    [[nodiscard]] std::string_view backend() const noexcept override { return "threads"; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const override { return control_; }
    [[nodiscard]] TransportCapabilities capabilities() const noexcept override {
        return {.recv_any = true,
                .probe = true,
                .start_message = true,
                .duplicate = true,
                .subgroup = true,
                .allocate = true,
                .is_interruptible = true};
    }

    void send(const Buffer& buffer, int to, int tag) override { complete({Verb::send, buffer, to, tag}); }
    void recv(const Buffer& buffer, int from, int tag) override { complete({Verb::recv, buffer, from, tag}); }

    [[nodiscard]] DPTK_INLINE int recv_any(const Buffer& buffer, int tag) override;

    [[nodiscard]] DPTK_INLINE std::optional<MessageInfo> probe(int from, int tag) override;

    DPTK_INLINE void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) override;

    [[nodiscard]] DPTK_INLINE std::shared_ptr<WorkState> start_message(const Message& message) override;

    DPTK_INLINE void run(const Collective& call) override;

    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> duplicate() override;

    /// Allocates memory that all ranks can access, and that exists as long as a rank has its part.
    /// Collective.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<void> allocate(std::size_t bytes) override;

    /// Returns, by rank, the addresses of the corresponding memory of every rank, for memory in an allocation
    /// of this transport; an empty list for other memory.
    [[nodiscard]] DPTK_INLINE std::vector<void*> peer_memory(const Buffer& buffer) const override;

    /// Creates a subgroup. Collective only among the ranks of the subgroup.
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> subgroup(std::span<const int> ranks,
                                                                  std::string_view name) override;

    void leave() noexcept override { hub_->leave(rank_); }

  private:
    using Calls = std::vector<Collective>;

    /// The parts of an allocation, by rank.
    struct Parts {
        std::vector<std::shared_ptr<void>> memory;
        std::size_t bytes = 0;
    };

    ThreadTransport(std::shared_ptr<detail::ThreadHub> hub, std::shared_ptr<detail::ControlPlane> control,
                    int rank);

    int complete(const Message& message);

    /// Publishes this rank's call and waits for the other ranks' calls. If all are the same, runs `action`,
    /// which may access all ranks' buffers; otherwise throws MismatchError.
    template <class Action>
    void run_joint(const Collective& call, Action&& action) {
        hub_->publish_and_wait(rank_, call);
        std::string difference;
        std::exception_ptr failure;
        try {
            difference = find_difference();
            if (difference.empty()) action(hub_->calls());
        } catch (...) {  // other ranks wait until this one calls finish()
            failure = std::current_exception();
            hub_->mark_incomplete();
        }
        hub_->finish(rank_);
        if (failure) std::rethrow_exception(failure);
        hub_->check_complete();
        if (difference.empty()) return;
        MismatchError error(difference);
        detail::ErrorAccess::mark_agreed(error);
        throw error;
    }

    void all_reduce(const Collective& call);
    void reduce(const Collective& call);
    void reduce_scatter(const Collective& call);
    void all_to_all(const Collective& call);
    void all_to_all_uneven(const Collective& call);

    [[nodiscard]] std::string find_difference() const;

    [[nodiscard]] std::size_t slice_begin(int slice, std::size_t count) const noexcept;

    /// Combines one slice of all ranks' inputs, and writes the result to each of `results`. The slice starts
    /// at element `first`, and has the count and dtype of `slice`.
    void reduce_slice(const Calls& calls, std::size_t first, const Buffer& slice, const Reduction& reduction,
                      std::span<void* const> results);

    [[nodiscard]] static const Collective& call_of(const Calls& calls, int rank);

    [[nodiscard]] std::size_t own_offset(std::size_t count) const noexcept;

    /// Copies the inputs of all ranks to `output`, one after the other.
    static void collect(const Calls& calls, const Buffer& output);

    static void take(const Buffer& to, const Buffer& from);

    static void copy(const Buffer& to, const Buffer& from);

    std::shared_ptr<detail::ThreadHub> hub_;
    std::shared_ptr<detail::ControlPlane> control_;
    int rank_;
    int duplicates_ = 0;
    std::vector<std::weak_ptr<const Parts>> allocations_;
    // The memory of the lists of addresses, so that a call allocates none.
    std::vector<const void*> sources_;
    std::vector<void*> results_;
};

/// The communicator of one thread rank. launch_threads creates one per rank and passes it to fn as a
/// ProcessGroup.
using ThreadCommunicator = BasicCommunicator<ThreadTransport>;

/// Options of launch_threads.
struct ThreadOptions {
    /// The time that a call waits for other ranks before it throws TimeoutError. Default: the timeout of the
    /// group that launch_threads receives; without a group, that of the variable DPTK_TIMEOUT, in seconds, or
    /// default_timeout.
    std::optional<std::chrono::milliseconds> timeout = std::nullopt;
    /// Whether the other ranks continue if an exception leaves fn on one of them: see docs/elastic.md. Not
    /// for the threads of several processes.
    bool elastic = false;
    /// How many ranks at most take the place of those that an exception has ended. Only with `elastic`.
    int max_restarts = 0;
};

namespace detail {

[[nodiscard]] std::chrono::milliseconds timeout_of(const ThreadOptions& options);

/// State that the ranks of one launch_threads call share.
struct ThreadJob {
    /// Throws ArgumentError if the timeout is that of DPTK_TIMEOUT, which is invalid.
    ThreadJob(int size_, const ThreadOptions& options);

    int size;
    std::chrono::milliseconds timeout;
    std::shared_ptr<JobState> job_state;
    std::shared_ptr<ThreadHub> hub = ThreadHub::make(size, job_state);
    std::shared_ptr<Store> store = std::make_shared<InProcessStore>();

    [[nodiscard]] ThreadTransport transport(int rank) const;
};

/// Implements launch_threads for a type-erased function.
void run_as_threads(int size, const std::function<void(ProcessGroup&)>& fn, const ThreadOptions& options);

/// Implements launch_threads with ThreadOptions::elastic.
void run_as_elastic_threads(int size, const std::function<void(ProcessGroup&)>& fn,
                            const ThreadOptions& options);

/// Implements launch_threads in each process of a group.
void run_as_threads(ProcessGroup& processes, int size, const std::function<void(ProcessGroup&)>& fn,
                    const ThreadOptions& options);

}  // namespace detail

/// Runs fn(ProcessGroup&) in `size` ranks, one thread each, and returns when all have ended.
///
/// If an exception leaves fn on one rank, the current or next call of each other rank throws a PeerLostError
/// with the text of the exception. When all ranks have ended, launch_threads rethrows the first exception
/// that is not a PeerLostError or, if no other exists, the first PeerLostError. A thread cannot be ended: if
/// a rank has not ended a second after the exception, the exception and that rank are logged. Throws
/// ArgumentError if `size` is less than 1.
///
/// With ThreadOptions::elastic, the other ranks continue, as docs/elastic.md describes: their calls throw
/// MembershipChanged, and an ElasticState or reform() forms the group again. Each rank begins as a group of
/// one rank. launch_threads returns if a rank has returned from fn, and otherwise rethrows as above.
template <class Fn>
void launch_threads(int size, Fn&& fn, const ThreadOptions& options = {}) {
    detail::run_as_threads(
        size, [&fn](ProcessGroup& group) { static_cast<void>(fn(group)); }, options);
}

/// Runs fn(ProcessGroup&) in `size` ranks of each process of `processes`, one thread each, and returns when
/// the ranks of this process have ended. The ranks of all processes form one group over TCP (over Gloo if the
/// processes are), and are numbered process by process. `size` may differ between processes.
///
/// If an exception leaves fn on one rank, the calls of the ranks of all processes throw as in
/// launch_threads(size, fn), and each process throws an exception of its own ranks, if one has left fn there.
/// `processes` is then broken as well, unless all ranks have thrown the same (Error::agreed).
///
/// Collective over `processes`, which fn must not use; blocks. Throws on all processes: ArgumentError if
/// `size` is less than 1 on any of them, or if there are several and the program does not include
/// <dptk/comm/tcp.hpp>, or `processes` is a group over a transport of the program; MismatchError if the
/// timeouts differ; Error if a thread cannot be started.
template <class Fn>
void launch_threads(ProcessGroup& processes, int size, Fn&& fn, const ThreadOptions& options = {}) {
    detail::run_as_threads(
        processes, size, [&fn](ProcessGroup& group) { static_cast<void>(fn(group)); }, options);
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/thread.ipp"
#endif
