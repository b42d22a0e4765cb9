/// Creates the groups of transports whose ranks find each other through a store: for init_process_group().
#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "dptk/comm/engine/engine.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/shm.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/launch/detail/join_job.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

/// Performs the rendezvous, and connects all ranks of the job. A Factory has the transport's `Options` and
/// `name`, and creates a transport with make(options, control, address, job_ranks): see TcpFactory.
/// Collective; blocks.
template <class Factory>
[[nodiscard]] ProcessGroup create_store_group(const JobRequest& asked) {
    const JobRequest request = with_method(asked);
    const auto job_state = std::make_shared<JobState>(request.generation_store ? JobState::Kind::elastic
                                                                               : JobState::Kind::fixed);
    const JoinedJob job = join_job(request, {}, job_state);
    typename Factory::Options options{.rank = request.launch.rank,
                                      .size = request.launch.world_size,
                                      .store = job.store,
                                      .interface = request.network_interface,
                                      .timeout = request.timeout,
                                      .hosts = job.hosts};
    try {
        return ShmCommunicator(
            ShmTransport(job.control, Factory::make(std::move(options), job.control, job.network_interface)));
    } catch (const std::exception& error) {  // other ranks may be connecting to this rank
        job_state->fail(error.what());
        throw;
    }
}

/// Connects some ranks of a job that has a store. Collective among these ranks; blocks.
template <class Factory>
[[nodiscard]] EngineOwner create_store_subgroup(const SubgroupRequest& request) {
    const std::shared_ptr<ControlPlane>& control = request.control;
    typename Factory::Options options{
        .rank = request.rank,
        .size = static_cast<int>(request.hosts.size()),
        .store = control->store(),
        .name = text(Factory::name, '/', request.identity.name),
        .interface = control->network_interface().empty() ? socket_interface() : control->network_interface(),
        .timeout = request.identity.timeout,
        .hosts = request.hosts};
    auto transport = std::make_unique<ShmTransport>(
        control, Factory::make(std::move(options), control, "", request.identity.ranks));
    return Engine::open(std::move(transport), control, request.identity, request.progress);
}

}  // namespace DPTK_NAMESPACE::detail
