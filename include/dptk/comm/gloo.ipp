#pragma once

#include "dptk/comm/gloo.hpp"

#include <exception>
#include <utility>

#include "dptk/control/health/heartbeat.hpp"
#include "dptk/control/health/program_end.hpp"
#include "dptk/control/launch/detail/rendezvous.hpp"
#include "dptk/control/launch/detail/rendezvous_store.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE Fit gloo_fit(const JobRequest& request) {
    if (request.method.rendezvous == RendezvousKind::mpi) return Fit::none;
    if (request.store || request.method.rendezvous != RendezvousKind::none) return Fit::natural;
    switch (request.launch.launcher) {
        case Launcher::torchrun: return request.launch.world_size > 1 ? Fit::natural : Fit::none;
        case Launcher::slurm: return request.launch.world_size > 1 ? Fit::possible : Fit::none;
        case Launcher::mpi:
        case Launcher::none: break;
    }
    return request.launch.world_size > 1 || request.backend == "gloo" ? Fit::possible : Fit::none;
}

/// Derives the rendezvous method from the launcher if the program does not specify one.
[[nodiscard]] DPTK_INLINE JobRequest with_method(JobRequest request) {
    if (request.store || request.method.rendezvous != RendezvousKind::none) return request;
    request.method.rendezvous =
        request.launch.launcher == Launcher::slurm ? RendezvousKind::slurm : RendezvousKind::env;
    return request;
}

DPTK_INLINE ProcessGroup create_gloo_group(const JobRequest& asked) {
    const JobRequest request = with_method(asked);
    const LaunchEnvironment& launch = request.launch;
    ControlPlaneOptions plane{.rank = launch.rank,
                              .size = launch.world_size,
                              .timeout = request.timeout,
                              .network_interface = request.network_interface};
    GlooOptions options{.rank = launch.rank,
                        .size = launch.world_size,
                        .interface = request.network_interface,
                        .timeout = request.timeout};
    const auto job_state = std::make_shared<JobState>();
    if (launch.world_size > 1) {
        const RendezvousStore place = open_rendezvous_store(request);
        Peers peers =
            rendezvous(*place.store, {launch.rank, launch.world_size, request.timeout, place.where});
        options.hosts = std::move(peers.hosts);
        options.store = place.store;
        plane.store = place.store;
        plane.peers = std::move(peers.labels);
        plane.before_terminate = [] { ProgramEnd::get().await_readers(); };
        if (launch.rank == 0) ProgramEnd::get().add_job(place.store, 0, launch.world_size, request.timeout);
        options.control = join_control_plane(std::move(plane), job_state, request.heartbeat_timeout);
    } else {
        options.control = ControlPlane::make(std::move(plane), job_state);
    }
    const std::shared_ptr<ControlPlane> control = options.control;  // still needed if the transport throws
    add_terminate_listener(control);
    try {
        return ShmCommunicator<GlooTransport>(ShmTransport(GlooTransport(std::move(options))));
    } catch (const std::exception& error) {  // other ranks may be connecting to this rank
        job_state->fail(error.what());
        throw;
    }
}

DPTK_INLINE std::unique_ptr<Channel> create_gloo_subgroup(const SubgroupRequest& request) {
    const std::shared_ptr<ControlPlane>& control = request.job.control;
    GlooOptions options{
        .rank = request.rank,
        .size = static_cast<int>(request.hosts.size()),
        .store = control->store(),
        .name = "gloo/" + request.identity.name,
        .interface = control->network_interface().empty() ? socket_interface() : control->network_interface(),
        .timeout = request.identity.timeout,
        .control = control,
        .hosts = request.hosts};
    return std::make_unique<TransportChannel<ShmTransport<GlooTransport>>>(
        ShmTransport(GlooTransport(std::move(options))), request.job, request.identity);
}

}  // namespace DPTK_NAMESPACE::detail
