#pragma once

#include "dptk/comm/gloo.hpp"

#include <exception>
#include <utility>

#include "dptk/control/launch/detail/join_job.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE Fit gloo_fit(const JobRequest& request) {
    if (is_tcp_available() && request.backend != "gloo") return Fit::none;
    return fit_of_store(request, "gloo");
}

DPTK_INLINE ProcessGroup create_gloo_group(const JobRequest& asked) {
    const JobRequest request = with_method(asked);
    const auto job_state = std::make_shared<JobState>();
    JoinedJob job = join_job(request, {}, job_state);
    GlooOptions options{.rank = request.launch.rank,
                        .size = request.launch.world_size,
                        .store = std::move(job.store),
                        .interface = job.network_interface,
                        .timeout = request.timeout,
                        .control = job.control,
                        .hosts = std::move(job.hosts)};
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
