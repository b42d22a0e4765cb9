/// Shared-memory transport, wrapped around an inner transport: collectives use shared memory between ranks of
/// one host; everything else uses the inner transport.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/shm/hosts.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

struct InitOptions;

namespace detail {

class ShmAllocations;
class ShmCollectives;
class ShmPages;

}  // namespace detail

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
class ShmTransport final : public Transport {
  public:
    /// Connects the ranks. Collective. Throws ArgumentError on all ranks if any rank sets DPTK_SHM to
    /// something other than 0 or 1, or a number of processors below 1.
    explicit ShmTransport(std::unique_ptr<Transport> inner, const ShmOptions& options = {});

    /// Connects the ranks of a transport of your own, whose processes report failures to each other through
    /// the init method or the store of `job`, as in BasicCommunicator's constructor. Collective.
    ShmTransport(std::unique_ptr<Transport> inner, const ShmOptions& options, const InitOptions& job);

    /// Overload that takes the inner transport by value: ShmTransport(MpiTransport(comm)).
    template <std::derived_from<Transport> Inner>
    explicit ShmTransport(Inner inner, const ShmOptions& options = {})
        : ShmTransport(std::make_unique<Inner>(std::move(inner)), options) {}
    /// Overload that takes the inner transport by value.
    template <std::derived_from<Transport> Inner>
    ShmTransport(Inner inner, const ShmOptions& options, const InitOptions& job)
        : ShmTransport(std::make_unique<Inner>(std::move(inner)), options, job) {}

    /// Connects the ranks of a job that has a control plane: for dptk's own transports.
    ShmTransport(std::shared_ptr<detail::ControlPlane> control, std::unique_ptr<Transport> inner,
                 const ShmOptions& options = {});

    ShmTransport(ShmTransport&& other) noexcept;
    ShmTransport& operator=(ShmTransport&& other) noexcept;
    DPTK_INLINE ~ShmTransport() override;

    [[nodiscard]] int rank() const override { return inner_->rank(); }
    [[nodiscard]] int size() const override { return inner_->size(); }
    [[nodiscard]] std::string_view backend() const override { return inner_->backend(); }
    [[nodiscard]] TransportCapabilities capabilities() const override { return capabilities_; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const override { return control_; }
    [[nodiscard]] int local_rank() const override { return inner_->local_rank(); }
    [[nodiscard]] int local_size() const override { return inner_->local_size(); }
    [[nodiscard]] bool callable_from_this_thread() const override {
        return inner_->callable_from_this_thread();
    }

    /// Returns whether ranks of this group share memory.
    [[nodiscard]] bool shares_memory() const noexcept { return collectives_ != nullptr; }

    DPTK_INLINE void run(const Collective& call) override;

    /// Starts the call on the inner transport. Returns null if the inner transport cannot start the call,
    /// which then runs when a thread waits for it.
    [[nodiscard]] std::shared_ptr<WorkState> start(const Collective& call) override {
        return inner_->start(call);
    }
    bool progress() override { return inner_->progress(); }

    void send(const Buffer& buffer, int to, int tag) override { inner_->send(buffer, to, tag); }
    void recv(const Buffer& buffer, int from, int tag) override { inner_->recv(buffer, from, tag); }
    [[nodiscard]] int recv_any(const Buffer& buffer, int tag) override {
        return inner_->recv_any(buffer, tag);
    }
    void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) override {
        inner_->send_recv(out, to, in, from, tag);
    }
    [[nodiscard]] std::optional<MessageInfo> probe(int from, int tag) override {
        return inner_->probe(from, tag);
    }
    [[nodiscard]] std::shared_ptr<WorkState> start_message(const Message& message) override {
        return inner_->start_message(message);
    }

    /// Returns a transport over the same ranks with shared memory of its own. Collective.
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> duplicate() override;

    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> subgroup(std::span<const int> ranks,
                                                                  std::string_view name) override;

    DPTK_INLINE void leave() noexcept override;

    [[nodiscard]] DPTK_INLINE std::shared_ptr<void> allocate(std::size_t bytes) override;

    /// Returns the addresses, by rank, of the memory of each rank that corresponds to `memory`. Empty if the
    /// ranks are on several hosts, or if `memory` is not shared memory from allocate().
    [[nodiscard]] DPTK_INLINE std::vector<void*> peer_memory(const Buffer& memory) const override;

    [[nodiscard]] bool takes_device_memory(const Collective& call) const override {
        return inner_->takes_device_memory(call);
    }

  private:
    /// What a transport takes over from the transport that it was created from.
    struct Inherited {
        std::shared_ptr<detail::ControlPlane> control = nullptr;
        std::optional<detail::CpuBudget> cpu_budget = std::nullopt;
        /// The table of allocations that a duplicate shares; null for a subgroup.
        std::shared_ptr<detail::ShmAllocations> allocations = nullptr;
    };

    ShmTransport(std::unique_ptr<Transport> inner, std::uint64_t host, ShmOptions options, Inherited from);

    template <class T>
    [[nodiscard]] std::vector<T> gather_from_all(const T& own);

    /// Sets up shared memory, on all ranks or on none.
    void connect(std::shared_ptr<detail::ShmAllocations> allocations);

    /// Creates or opens the pages that this host's ranks share. Returns null on all ranks of all hosts if any
    /// rank cannot create or open the pages of its host.
    [[nodiscard]] std::shared_ptr<detail::ShmPages> exchange_pages(const detail::ShmHosts& hosts);

    /// Connects this rank to the ranks of the other hosts that have the same local rank. Does nothing if some
    /// host has no such rank.
    void join_hosts(const detail::ShmHosts& hosts, std::uint64_t token);

    std::shared_ptr<Transport> inner_;
    std::shared_ptr<detail::ControlPlane> control_;
    ShmOptions options_;
    std::uint64_t host_;
    TransportCapabilities capabilities_;
    /// Connects the ranks that have the same local rank as this rank, one on each host. Null if there is only
    /// one host, or if some host has no such rank.
    std::shared_ptr<Transport> across_;
    std::vector<int> across_ranks_;
    /// The CPU budget of this host, computed by the job's first transport.
    std::optional<detail::CpuBudget> cpu_budget_;
    std::unique_ptr<detail::ShmCollectives> collectives_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/transport.ipp"
#endif
