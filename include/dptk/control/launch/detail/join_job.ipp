#pragma once

#include "dptk/control/launch/detail/join_job.hpp"

#include <utility>

#include "dptk/control/health/heartbeat.hpp"
#include "dptk/control/health/program_end.hpp"
#include "dptk/control/health/terminate.hpp"
#include "dptk/control/launch/detail/rendezvous.hpp"
#include "dptk/control/launch/detail/rendezvous_store.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE JoinedJob join_job(const JobRequest& request, ControlPlaneOptions plane,
                               const std::shared_ptr<JobState>& job_state) {
    const LaunchEnvironment& launch = request.launch;
    plane.rank = launch.rank;
    plane.size = launch.world_size;
    plane.timeout = request.timeout;
    plane.network_interface = request.network_interface;
    JoinedJob job;
    if (launch.world_size > 1) {
        const RendezvousStore place = open_rendezvous_store(request);
        Peers peers =
            rendezvous(*place.store, {launch.rank, launch.world_size, request.timeout, place.where});
        job.hosts = std::move(peers.hosts);
        job.store = place.store;
        plane.store = place.store;
        plane.peers = std::move(peers.labels);
        plane.before_terminate = [] { ProgramEnd::get().await_readers(); };
        if (launch.rank == 0) ProgramEnd::get().add_job(place.store, 0, launch.world_size, request.timeout);
        job.control = join_control_plane(std::move(plane), job_state, request.heartbeat_timeout);
    } else {
        job.control = ControlPlane::make(std::move(plane), job_state);
    }
    add_terminate_listener(job.control);
    return job;
}

}  // namespace DPTK_NAMESPACE::detail
