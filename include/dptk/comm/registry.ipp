#pragma once

#include "dptk/comm/registry.hpp"

#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE bool register_transport(const TransportEntry& entry) {
    return detail::transport_registry().add(entry);
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE const TransportEntry* find_transport(const std::vector<TransportEntry>& entries,
                                                 std::string_view name) {
    const auto entry = detail::find(entries, name, &TransportEntry::name);
    return entry == entries.end() ? nullptr : &*entry;
}

DPTK_INLINE Fit fit_of_store(const JobRequest& request, std::string_view backend) {
    if (request.method.rendezvous == RendezvousKind::mpi) return Fit::none;
    if (request.generation_store) return Fit::natural;
    if (request.store || request.method.rendezvous != RendezvousKind::none) return Fit::natural;
    switch (request.launch.launcher) {
        case Launcher::torchrun: return request.launch.world_size > 1 ? Fit::natural : Fit::none;
        case Launcher::slurm: return request.launch.world_size > 1 ? Fit::possible : Fit::none;
        case Launcher::mpi:
        case Launcher::none: break;
    }
    return request.launch.world_size > 1 || request.backend == backend ? Fit::possible : Fit::none;
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE std::vector<TransportEntry> registered_transports() {
    return detail::transport_registry().all();
}

DPTK_INLINE std::optional<TransportEntry> choose_transport(const JobRequest& request) {
    std::optional<TransportEntry> best;
    Fit best_fit = Fit::none;
    for (const TransportEntry& entry : registered_transports()) {
        if (!request.backend.empty() && request.backend != entry.name) continue;
        const Fit fit = entry.fit(request);
        if (fit <= best_fit) continue;
        best = entry;
        best_fit = fit;
    }
    return best;
}

DPTK_INLINE bool is_mpi_available() {
    return detail::find_transport(registered_transports(), "mpi") != nullptr;
}

DPTK_INLINE bool is_tcp_available() {
    return detail::find_transport(registered_transports(), "tcp") != nullptr;
}

DPTK_INLINE bool is_gloo_available() {
    return detail::find_transport(registered_transports(), "gloo") != nullptr;
}

DPTK_INLINE bool is_nccl_available() {
    return detail::any_of(detail::device_registry().all(),
                          [](const detail::DeviceTransportEntry& entry) { return entry.name == "nccl"; });
}

}  // namespace DPTK_NAMESPACE
