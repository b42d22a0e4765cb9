#pragma once

#include "dptk/control/launch/detail/join_job.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "dptk/control/health/heartbeat.hpp"
#include "dptk/control/health/program_end.hpp"
#include "dptk/control/health/terminate.hpp"
#include "dptk/control/launch/detail/rendezvous.hpp"
#include "dptk/control/launch/detail/rendezvous_store.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] DPTK_INLINE bool has_several(const std::vector<std::string>& hosts) {
    return !detail::all_of(hosts, [&](const std::string& host) { return host == hosts.front(); });
}

/// Returns whether an interface of this host has the address. Behind a router that translates addresses,
/// other hosts see another one.
[[nodiscard]] DPTK_INLINE bool is_own_address(const std::string& address) {
    return detail::contains(own_addresses(), address);
}

DPTK_INLINE JobRequest with_method(JobRequest request) {
    if (request.store || request.generation_store || request.method.rendezvous != RendezvousKind::none)
        return request;
    request.method.rendezvous =
        request.launch.launcher == Launcher::slurm ? RendezvousKind::slurm : RendezvousKind::env;
    return request;
}

DPTK_INLINE JoinedJob join_job(const JobRequest& request, ControlPlaneOptions plane,
                               const std::shared_ptr<JobState>& job_state) {
    const LaunchEnvironment& launch = request.launch;
    plane.rank = launch.rank;
    plane.size = launch.world_size;
    plane.timeout = request.timeout;
    JoinedJob job;
    job.network_interface = request.network_interface;
    if (launch.world_size > 1 || request.generation_store) {
        const RendezvousStore place = open_rendezvous_store(request);
        Peers peers =
            rendezvous(*place.store, {launch.rank, launch.world_size, request.timeout, place.where});
        const std::string& address = peers.addresses[static_cast<std::size_t>(launch.rank)];
        if (job.network_interface.empty() && has_several(peers.hosts) && is_own_address(address))
            job.network_interface = address;
        job.hosts = std::move(peers.hosts);
        job.store = place.store;
        plane.store = place.store;
        plane.peers = std::move(peers.labels);
        plane.before_terminate = [] { ProgramEnd::get().await_readers(); };
        const bool serves_store = launch.rank == 0 && !request.generation_store;
        if (serves_store) ProgramEnd::get().add_job(place.store, 0, launch.world_size, request.timeout);
    }
    plane.network_interface = job.network_interface;
    job.control = job.store ? join_control_plane(std::move(plane), job_state, request.heartbeat_timeout)
                            : ControlPlane::make(std::move(plane), job_state);
    add_terminate_listener(job.control);
    return job;
}

}  // namespace DPTK_NAMESPACE::detail
