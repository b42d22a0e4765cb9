#pragma once

#include "dptk/comm/shm/transport.hpp"

#include <sched.h>

#include <cstring>
#include <random>

#include "dptk/comm/detail/outer_call.hpp"
#include "dptk/comm/engine/engine.hpp"
#include "dptk/comm/shm/collectives.hpp"
#include "dptk/comm/shm/paced_progress.hpp"
#include "dptk/comm/shm/pages.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] DPTK_INLINE std::uint64_t hash_of_host(const ShmOptions& options) {
    return fnv1a(options.host.empty() ? host_identity() : options.host);
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE ShmTransport::ShmTransport(std::unique_ptr<Transport> inner, const ShmOptions& options)
    : ShmTransport(std::move(inner), options, InitOptions()) {}

DPTK_INLINE ShmTransport::ShmTransport(std::unique_ptr<Transport> inner, const ShmOptions& options,
                                       const InitOptions& job)
    // Braces: the control plane is created before `inner` is moved.
    : ShmTransport{detail::control_of(*inner, job), std::move(inner), options} {}

DPTK_INLINE ShmTransport::ShmTransport(std::shared_ptr<detail::ControlPlane> control,
                                       std::unique_ptr<Transport> inner, const ShmOptions& options)
    : ShmTransport(std::move(inner), detail::hash_of_host(options), options,
                   {.control = std::move(control)}) {}

DPTK_INLINE ShmTransport::ShmTransport(std::unique_ptr<Transport> inner, std::uint64_t host,
                                       ShmOptions options, Inherited from)
    : inner_(std::move(inner)),
      control_(std::move(from.control)),
      options_(std::move(options)),
      host_(host),
      capabilities_(inner_->capabilities()),
      cpu_budget_(from.cpu_budget) {
    capabilities_.competes_with_compute = false;
    if (size() > 1) connect(std::move(from.allocations));
    if (collectives_) capabilities_.allocate = true;
}

DPTK_INLINE ShmTransport::ShmTransport(ShmTransport&& other) noexcept = default;
DPTK_INLINE ShmTransport& ShmTransport::operator=(ShmTransport&& other) noexcept = default;
DPTK_INLINE ShmTransport::~ShmTransport() = default;

DPTK_INLINE void ShmTransport::run(const Collective& call) {
    if (collectives_) {
        if (call.algorithm == AllReduceAlgorithm::automatic && collectives_->serves(call)) {
            const detail::OuterCall outer{call, across_ranks_};
            const detail::OuterCallScope scope(outer);
            return collectives_->run(call);
        }
        collectives_->check(call);
    }
    inner_->run(call);
}

DPTK_INLINE std::shared_ptr<void> ShmTransport::allocate(std::size_t bytes) {
    return collectives_ ? collectives_->allocate(bytes) : inner_->allocate(bytes);
}

DPTK_INLINE std::vector<void*> ShmTransport::peer_memory(const Buffer& memory) const {
    return collectives_ ? collectives_->peer_memory(memory) : std::vector<void*>();
}

DPTK_INLINE std::unique_ptr<Transport> ShmTransport::duplicate() {
    std::unique_ptr<Transport> inner = inner_->duplicate();
    return std::unique_ptr<Transport>(new ShmTransport(
        std::move(inner), host_, options_,
        {control_, cpu_budget_, collectives_ ? collectives_->region().allocations() : nullptr}));
}

DPTK_INLINE std::unique_ptr<Transport> ShmTransport::subgroup(std::span<const int> ranks,
                                                              std::string_view name) {
    return std::unique_ptr<Transport>(
        new ShmTransport(inner_->subgroup(ranks, name), host_, options_, {control_, cpu_budget_, nullptr}));
}

DPTK_INLINE void ShmTransport::leave() noexcept {
    if (across_) across_->leave();
    inner_->leave();
}

template <class T>
std::vector<T> ShmTransport::gather_from_all(const T& own) {
    std::vector<T> all(static_cast<std::size_t>(size()));
    T copy = own;
    inner_->run({.verb = Verb::all_gather,
                 .input = {&copy, 1, DType::opaque, {}, sizeof(T)},
                 .output = {all.data(), all.size(), DType::opaque, {}, sizeof(T)}});
    return all;
}

DPTK_INLINE void ShmTransport::connect(std::shared_ptr<detail::ShmAllocations> allocations) {
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
    if (hosts.count() > 1 && !capabilities_.subgroup) return;
    std::shared_ptr<detail::ShmPages> pages = exchange_pages(hosts);
    if (!pages) return;
    if (!allocations) allocations = std::make_shared<detail::ShmAllocations>();
    detail::ShmRegion::Options options{
        .rank = hosts.local_rank,
        .size = static_cast<int>(hosts.local().size()),
        .job_rank = rank(),
        .has_own_processor = cpu_budget_->has_own_processors,
        .idle = [inner = inner_, control = control_, progresses = capabilities_.progress,
                 pace = detail::PacedProgress()]() mutable {
            control->job_state()->check();
            return progresses && pace([&] { return inner->progress(); });
        }};
    capabilities_.competes_with_compute = hosts.count() == 1 && !cpu_budget_->has_spare_processors;
    join_hosts(hosts, peers[0].token);
    std::function<void(const Collective&)> across;
    if (across_) across = [inner = across_](const Collective& call) { inner->run(call); };
    collectives_ = std::make_unique<detail::ShmCollectives>(detail::ShmContext(
        std::make_unique<detail::ShmRegion>(std::move(pages), std::move(allocations), std::move(options)),
        hosts, std::move(across)));
}

DPTK_INLINE std::shared_ptr<detail::ShmPages> ShmTransport::exchange_pages(const detail::ShmHosts& hosts) {
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

DPTK_INLINE void ShmTransport::join_hosts(const detail::ShmHosts& hosts, std::uint64_t token) {
    if (hosts.count() == 1 || hosts.local_rank >= hosts.min_local_size) return;
    across_ranks_ = hosts.across();
    across_ = inner_->subgroup(across_ranks_, detail::text("hosts/", token, "/", hosts.local_rank));
}

}  // namespace DPTK_NAMESPACE
