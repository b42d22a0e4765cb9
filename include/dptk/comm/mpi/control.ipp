#pragma once

#include "dptk/comm/mpi/control.hpp"

#include <cstdint>
#include <exception>
#include <utility>

#include "dptk/control/health/heartbeat.hpp"
#include "dptk/control/health/program_end.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/control/process/debug.hpp"
#include "dptk/control/store/detail/served_store.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/fnv1a.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE MpiControl::MpiControl(MPI_Comm comm, MpiOptions options)
    : comm_(comm), options_(std::move(options)) {
    check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
}

DPTK_INLINE std::shared_ptr<ControlPlane> MpiControl::make() {
    MpiEnvironment& environment = MpiEnvironment::get();
    environment.set_timeout(options_.timeout);
    ControlPlaneOptions plane{.rank = rank_,
                              .size = size_,
                              .timeout = options_.timeout,
                              .peers = exchange_peer_info(),
                              .network_interface = options_.network_interface,
                              .last_resort = [&environment](const std::string&) { environment.end_job(); }};
    if (size_ > 1) plane.store = connect();
    if (!plane.store) return ControlPlane::make(std::move(plane), environment.job_state());
    ProgramEnd::get().add_job(plane.store, rank_, size_, options_.timeout);
    return join_control_plane(std::move(plane), environment.job_state(), options_.heartbeat_timeout);
}

DPTK_INLINE std::vector<std::string> MpiControl::exchange_peer_info() const {
    PeerInfo own;
    copy_text(own.version, job_version());
    copy_text(own.label, process_label());
    std::vector<PeerInfo> all(static_cast<std::size_t>(size_));
    check_mpi(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, comm_),
              "MPI_Allgather");
    std::vector<std::string> labels;
    for (const PeerInfo& peer : all) {
        labels.emplace_back(peer.label.data());
        if (peer.version == all[0].version) continue;
        MismatchError error(text("the processes use different versions of dptk: rank 0 (",
                                 all[0].label.data(), ") has ", all[0].version.data(), ", rank ",
                                 labels.size() - 1, " (", labels.back(), ") has ", peer.version.data()));
        detail::ErrorAccess::mark_agreed(error);
        throw error;
    }
    return labels;
}

DPTK_INLINE bool MpiControl::is_on_one_host() const {
    const std::uint64_t host = fnv1a(host_identity());
    std::array<std::uint64_t, 2> bounds{host, ~host};
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, bounds.data(), 2, MPI_UINT64_T, MPI_MIN, comm_), "MPI_Allreduce");
    return bounds[0] == ~bounds[1];
}

DPTK_INLINE std::shared_ptr<Store> MpiControl::connect() {
    if (is_on_one_host() && options_.bind_address.empty()) options_.bind_address = loopback_address();
    std::shared_ptr<Store> store;
    std::string endpoint;
    std::string problem;
    try {
        if (rank_ == 0) {
            auto [served, invited] = StoreServers::get().serve_at_free_port(options_.bind_address);
            store = std::move(served);
            endpoint = invited.to_text();
        }
    } catch (const std::exception& error) {
        problem = error.what();
    }
    broadcast(endpoint);
    try {
        if (rank_ != 0 && !endpoint.empty()) {
            store = connect_to_endpoint(StoreEndpoint::parse(endpoint), connect_timeout,
                                        options_.heartbeat_timeout);
        }
    } catch (const std::exception& error) {
        problem = error.what();
    }
    int connected = store ? 1 : 0;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &connected, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
    if (connected == 1) return store;
    if (!problem.empty()) {
        log(LogLevel::warning, rank_,
            "there is no control plane, so lost ranks are only detected by timeouts: " + problem);
    }
    return nullptr;
}

DPTK_INLINE void MpiControl::broadcast(std::string& line) const {
    int length = static_cast<int>(line.size());
    check_mpi(MPI_Bcast(&length, 1, MPI_INT, 0, comm_), "MPI_Bcast");
    line.resize(static_cast<std::size_t>(length));
    check_mpi(MPI_Bcast(line.data(), length, MPI_CHAR, 0, comm_), "MPI_Bcast");
}

}  // namespace DPTK_NAMESPACE::detail
