/// Shared-memory transport, wrapped around an inner transport: collectives use shared memory between ranks of
/// one host; everything else uses the inner transport.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/detail/outer_call.hpp"
#include "dptk/comm/detail/transport_defaults.hpp"
#include "dptk/comm/detail/transport_members.hpp"
#include "dptk/comm/shm/collectives.hpp"
#include "dptk/comm/shm/hosts.hpp"
#include "dptk/comm/shm/paced_progress.hpp"
#include "dptk/comm/shm/pages.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE {

/// Options of ShmTransport: which ranks share a host, and how many processors the host has.
struct ShmOptions {
    /// The host's name: ranks with the same name share memory. If empty, the host is identified by its host
    /// name and the kernel's boot id.
    std::string host = {};
    /// The number of processors that the ranks of a host have together. With at least one per rank, a
    /// waiting rank spins before it sleeps; with at least two per rank, background threads have a processor
    /// of their own. If ranks have different values, the smallest one is used. The default is
    /// DPTK_PROCESSORS, or else the number of processors in the processes' affinity masks.
    std::optional<int> processors = std::nullopt;
};

/// A transport that uses shared memory within a host. All calls use the inner transport if no two ranks share
/// a host, or if DPTK_SHM=0 is set on any rank.
template <Transport Inner>
class ShmTransport {
  public:
    static constexpr bool interruptible = detail::Interruptible<Inner>;
    /// Whether optional members have requires clauses: this transport has those that Inner has.
    static constexpr bool has_conditional_members = true;

    /// Connects the ranks. Collective. Throws ArgumentError on all ranks if any rank sets DPTK_SHM to
    /// something other than 0 or 1, or a number of processors below 1.
    explicit ShmTransport(Inner inner, const ShmOptions& options = {})
        : ShmTransport(std::move(inner), host_of(options), options, {}) {}

    /// Connects the ranks of a transport of your own, whose processes report failures to each other through
    /// the init method or the store of `job`, as in BasicCommunicator's constructor. Collective.
    ShmTransport(Inner inner, const ShmOptions& options, const InitOptions& job)
        requires(!detail::HasControl<Inner>)
        : ShmTransport{detail::control_of(inner, job), std::move(inner), options} {}

    /// Connects the ranks of a job that has a control plane: for dptk's own transports.
    ShmTransport(std::shared_ptr<detail::ControlPlane> control, Inner inner, const ShmOptions& options = {})
        : ShmTransport(std::move(inner), host_of(options), options, {.control = std::move(control)}) {}

    [[nodiscard]] int rank() const { return inner_->rank(); }
    [[nodiscard]] int size() const { return inner_->size(); }
    [[nodiscard]] auto backend() const { return inner_->backend(); }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const { return control_; }
    [[nodiscard]] int local_rank() const
        requires detail::HasLocalRank<Inner>
    {
        return inner_->local_rank();
    }
    [[nodiscard]] int local_size() const
        requires detail::HasLocalRank<Inner>
    {
        return inner_->local_size();
    }

    /// Whether ranks of this group share memory.
    [[nodiscard]] bool shares_memory() const noexcept { return collectives_ != nullptr; }

    void run(const Collective& call, AllReduceAlgorithm algorithm) {
        if (collectives_) {
            if (algorithm == AllReduceAlgorithm::automatic && collectives_->serves(call)) {
                const detail::OuterCall outer{call, across_ranks_};
                const detail::OuterCallScope scope(outer);
                return collectives_->run(call);
            }
            collectives_->check(call);
        }
        algorithms::run(*inner_, call, algorithm);
    }

    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) {
        if (collectives_) return collectives_->allocate(bytes);
        if constexpr (detail::HasAllocate<Inner>) return inner_->allocate(bytes);
        return detail::allocate_aligned(bytes);
    }

    /// Returns the addresses, by rank, of the memory of each rank that corresponds to `memory`. Empty if the
    /// ranks are on several hosts, or if `memory` is not shared memory from allocate().
    [[nodiscard]] std::vector<void*> peer_memory(const Buffer& memory) const {
        return collectives_ ? collectives_->peer_memory(memory) : std::vector<void*>();
    }

    void send(const Buffer& buffer, int to, int tag) { inner_->send(buffer, to, tag); }
    void recv(const Buffer& buffer, int from, int tag) { inner_->recv(buffer, from, tag); }
    [[nodiscard]] int recv_any(const Buffer& buffer, int tag)
        requires detail::HasRecvAny<Inner>
    {
        return inner_->recv_any(buffer, tag);
    }
    [[nodiscard]] std::optional<MessageInfo> probe(int from, int tag)
        requires detail::HasProbe<Inner>
    {
        return inner_->probe(from, tag);
    }
    void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag)
        requires detail::HasSendRecv<Inner>
    {
        inner_->send_recv(out, to, in, from, tag);
    }
    [[nodiscard]] std::shared_ptr<WorkState> start(const Message& message)
        requires detail::HasStartMessage<Inner>
    {
        return inner_->start(message);
    }

    /// Whether calls in the background compete for processors with the thread that computes. Calls through
    /// shared memory do, unless each rank has a spare processor.
    [[nodiscard]] bool competes_with_compute() const noexcept { return competes_with_compute_; }

    /// Starts the call on the inner transport. Returns null if the inner transport cannot start the call,
    /// which then runs when a thread waits for it.
    [[nodiscard]] std::shared_ptr<WorkState> start(const Collective& call)
        requires detail::HasStart<Inner>
    {
        return inner_->start(call);
    }
    [[nodiscard]] bool progresses_by_caller() const
        requires detail::HasStart<Inner>
    {
        return inner_->progresses_by_caller();
    }
    [[nodiscard]] bool progress()
        requires detail::HasProgress<Inner>
    {
        return inner_->progress();
    }
    [[nodiscard]] bool callable_from_this_thread() const
        requires detail::HasThreadRule<Inner>
    {
        return inner_->callable_from_this_thread();
    }
    [[nodiscard]] bool takes_device_memory(const Collective& call) const
        requires detail::HasTakesDeviceMemory<Inner>
    {
        return inner_->takes_device_memory(call);
    }

    /// Returns a transport over the same ranks with shared memory of its own. Collective.
    [[nodiscard]] ShmTransport duplicate()
        requires detail::HasDuplicate<Inner>
    {
        return ShmTransport(
            inner_->duplicate(), host_, options_,
            {control_, cpu_budget_, collectives_ ? collectives_->region().allocations() : nullptr});
    }

    [[nodiscard]] ShmTransport subgroup(std::span<const int> ranks, std::string_view name)
        requires detail::HasSubgroup<Inner>
    {
        return ShmTransport(inner_->subgroup(ranks, name), host_, options_, {control_, cpu_budget_, nullptr});
    }

    void leave() noexcept
        requires detail::HasLeave<Inner>
    {
        if (across_) across_->leave();
        inner_->leave();
    }

  private:
    /// What a transport takes over from the transport that it was created from.
    struct Inherited {
        std::shared_ptr<detail::ControlPlane> control = nullptr;
        std::optional<detail::CpuBudget> cpu_budget = std::nullopt;
        /// The table of allocations that a duplicate shares; null for a subgroup.
        std::shared_ptr<detail::ShmAllocations> allocations = nullptr;
    };

    ShmTransport(Inner inner, std::uint64_t host, ShmOptions options, Inherited from)
        : inner_(std::make_shared<Inner>(std::move(inner))),
          control_(from.control ? std::move(from.control) : detail::control_of(*inner_)),
          options_(std::move(options)),
          host_(host),
          cpu_budget_(from.cpu_budget) {
        if (size() > 1) connect(std::move(from.allocations));
    }

    [[nodiscard]] static std::uint64_t host_of(const ShmOptions& options) {
        return detail::fnv1a(options.host.empty() ? detail::host_identity() : options.host);
    }

    template <class T>
    [[nodiscard]] std::vector<T> gather_from_all(const T& own) {
        std::vector<T> all(static_cast<std::size_t>(size()));
        T copy = own;
        algorithms::run_out_of_line(*inner_,
                                    {.verb = Verb::all_gather,
                                     .input = {&copy, 1, DType::opaque, {}, sizeof(T)},
                                     .output = {all.data(), all.size(), DType::opaque, {}, sizeof(T)}});
        return all;
    }

    /// Sets up shared memory, on all ranks or on none.
    void connect(std::shared_ptr<detail::ShmAllocations> allocations) {
        detail::ShmPeerInfo own{.host = host_,
                                .settings = detail::ShmSettings::from_environment(options_.processors),
                                .token = std::random_device()()};
        // Fails on a machine with more than 1024 processors.
        if (sched_getaffinity(0, sizeof own.processors, &own.processors) != 0)
            std::memset(&own.processors, 0xff, sizeof own.processors);
        const std::vector<detail::ShmPeerInfo> peers = gather_from_all(own);
        std::vector<detail::ShmSettings> settings;
        for (const detail::ShmPeerInfo& peer : peers) settings.push_back(peer.settings);
        detail::check_settings(settings);
        const detail::ShmHosts hosts(peers, rank());
        if (!cpu_budget_) cpu_budget_ = hosts.cpu_budget;
        if (!hosts.shared || !hosts.may_share) return;
        if (hosts.count() > 1 && !detail::HasSubgroup<Inner>) return;
        std::shared_ptr<detail::ShmPages> pages = exchange_pages(hosts);
        if (!pages) return;
        if (!allocations) allocations = std::make_shared<detail::ShmAllocations>();
        detail::ShmRegion::Options options{
            .rank = hosts.local_rank,
            .size = static_cast<int>(hosts.local().size()),
            .job_rank = rank(),
            .has_own_processor = cpu_budget_->has_own_processors,
            .idle = [inner = inner_, control = control_, pace = detail::PacedProgress()]() mutable {
                control->job_state()->check();
                if constexpr (detail::HasProgress<Inner>) return pace([&] { return inner->progress(); });
                return false;
            }};
        competes_with_compute_ = hosts.count() == 1 && !cpu_budget_->has_spare_processors;
        join_hosts(hosts, peers[0].token);
        std::function<void(const Collective&)> across;
        if (across_)
            across = [inner = across_](const Collective& call) { algorithms::run_out_of_line(*inner, call); };
        collectives_ = std::make_unique<detail::ShmCollectives>(detail::ShmContext(
            std::make_unique<detail::ShmRegion>(std::move(pages), std::move(allocations), std::move(options)),
            hosts, std::move(across)));
    }

    /// Creates or opens the pages that this host's ranks share. Returns null on all ranks of all hosts if any
    /// rank cannot create or open the pages of its host.
    [[nodiscard]] std::shared_ptr<detail::ShmPages> exchange_pages(const detail::ShmHosts& hosts) {
        std::string problem;
        const int ranks = static_cast<int>(hosts.local().size());
        std::shared_ptr<detail::ShmPages> pages = detail::ShmPages::share(
            hosts.local_rank == 0, detail::ShmRegion::bytes_for(ranks),
            [&](const detail::ShmHandle& own) {
                return gather_from_all(own)[static_cast<std::size_t>(hosts.local()[0])];
            },
            [&](bool success) {
                const std::vector<char> all = gather_from_all(static_cast<char>(success));
                return detail::all_of(all, [](char one) { return one != 0; });
            },
            [](detail::ShmPages&) {}, problem);
        if (!problem.empty()) detail::warn_once_not_shared(rank(), problem);
        return pages;
    }

    /// Connects this rank to the ranks of the other hosts that have the same local rank. Does nothing if some
    /// host has no such rank.
    void join_hosts(const detail::ShmHosts& hosts, std::uint64_t token) {
        if constexpr (detail::HasSubgroup<Inner>) {
            if (hosts.count() == 1 || hosts.local_rank >= hosts.min_local_size) return;
            across_ranks_ = hosts.across();
            across_ = std::make_shared<Inner>(
                inner_->subgroup(across_ranks_, detail::text("hosts/", token, "/", hosts.local_rank)));
        }
    }

    std::shared_ptr<Inner> inner_;
    std::shared_ptr<detail::ControlPlane> control_;
    ShmOptions options_;
    std::uint64_t host_;
    /// Connects the ranks that have the same local rank as this rank, one on each host. Null if there is only
    /// one host, or if some host has no such rank.
    std::shared_ptr<Inner> across_;
    std::vector<int> across_ranks_;
    /// The CPU budget of this host, computed by the job's first transport.
    std::optional<detail::CpuBudget> cpu_budget_;
    bool competes_with_compute_ = false;
    std::unique_ptr<detail::ShmCollectives> collectives_;
};

}  // namespace DPTK_NAMESPACE
