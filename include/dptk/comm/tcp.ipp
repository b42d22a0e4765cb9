#pragma once

#include "dptk/comm/tcp.hpp"

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/shm.hpp"
#include "dptk/comm/tcp/mesh.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/launch/detail/join_job.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE Fit tcp_fit(const JobRequest& request) {
    return fit_of_store(request, "tcp");
}

DPTK_INLINE ProcessGroup create_tcp_group(const JobRequest& asked) {
    const JobRequest request = with_method(asked);
    const auto job_state = std::make_shared<JobState>();
    const JoinedJob job = join_job(request, {}, job_state);
    const TcpOptions options{.rank = request.launch.rank,
                             .size = request.launch.world_size,
                             .store = job.store,
                             .interface = request.network_interface,
                             .timeout = request.timeout,
                             .hosts = job.hosts};
    try {
        return ShmCommunicator<TcpTransport>(
            ShmTransport(job.control, TcpFactory::make(options, job.control, job.network_interface)));
    } catch (const std::exception& error) {  // other ranks may be connecting to this rank
        job_state->fail(error.what());
        throw;
    }
}

DPTK_INLINE std::unique_ptr<Channel> create_tcp_subgroup(const SubgroupRequest& request) {
    const std::shared_ptr<ControlPlane>& control = request.job.control;
    const TcpOptions options{
        .rank = request.rank,
        .size = static_cast<int>(request.hosts.size()),
        .store = control->store(),
        .name = "tcp/" + request.identity.name,
        .interface = control->network_interface().empty() ? socket_interface() : control->network_interface(),
        .timeout = request.identity.timeout,
        .hosts = request.hosts};
    return std::make_unique<TransportChannel<ShmTransport<TcpTransport>>>(
        ShmTransport(control, TcpFactory::make(options, control, "", request.identity.ranks)), request.job,
        request.identity);
}

}  // namespace DPTK_NAMESPACE::detail
