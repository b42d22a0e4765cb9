#pragma once

#include "dptk/comm/mpi.hpp"

#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>

namespace DPTK_NAMESPACE::detail {

/// Returns whether MPI can be used: it was initialized, and has not been finalized.
[[nodiscard]] DPTK_INLINE bool mpi_is_initialized() {
    int initialized = 0;
    MPI_Initialized(&initialized);
    return initialized != 0 && !MpiEnvironment::is_finalized();
}

/// Returns the size of MPI_COMM_WORLD. Initializes MPI if necessary.
[[nodiscard]] DPTK_INLINE int mpi_world_size() {
    static_cast<void>(MpiEnvironment::get());
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

/// Returns whether srun has set the variables by which this MPI finds its ranks (PMIx for Open MPI, PMI
/// otherwise). Without them, Open MPI's MPI_Init ends the process, and other MPIs run with one rank.
[[nodiscard]] DPTK_INLINE bool slurm_speaks_mpi() {
    const bool open_mpi = MpiEnvironment::library().starts_with("Open MPI");
    return std::getenv(open_mpi ? "PMIX_RANK" : "PMI_FD") != nullptr;
}

DPTK_INLINE Fit mpi_fit(const JobRequest& request) {
    const bool asked = request.backend == "mpi" || request.method.rendezvous == RendezvousKind::mpi;
    const bool other_method = request.store || request.method.rendezvous != RendezvousKind::none;
    if (asked) return Fit::natural;
    if (other_method) return Fit::none;
    switch (request.launch.launcher) {
        case Launcher::mpi: return Fit::natural;
        case Launcher::slurm:
            if (!mpi_is_initialized() && !slurm_speaks_mpi()) return Fit::none;
            return mpi_world_size() == request.launch.world_size ? Fit::natural : Fit::none;
        case Launcher::torchrun: return mpi_is_initialized() ? Fit::possible : Fit::none;
        case Launcher::none: break;
    }
    return mpi_is_initialized() ? Fit::natural : Fit::none;
}

/// Throws if the launcher's rank or world size differs from MPI's. For example, a program that was started by
/// the mpirun of another MPI implementation finds only one rank in MPI_COMM_WORLD.
DPTK_INLINE void check_launched_by_linked_mpi(const LaunchEnvironment& launch) {
    if (launch.source == LaunchEnvironment{}.source) return;
    const int size = mpi_world_size();
    const int rank = MpiEnvironment::get().rank();
    if (size == launch.world_size && rank == launch.rank) return;
    if (size == launch.world_size) {
        throw ArgumentError(text("the launcher's variables contradict MPI: ", launch.source, " says rank ",
                                 launch.rank, ", but MPI_Comm_rank says ", rank));
    }
    throw BackendError(text("rank ", launch.rank, ": started as one of ", launch.world_size, " ranks by ",
                            launch.source, ", but MPI_Comm_size says ", size,
                            ": this program is linked with ", MpiEnvironment::library(),
                            ", which that launcher does not support. Start it with the mpirun of ",
                            MpiEnvironment::library(), ", or build it with the launcher's MPI"));
}

DPTK_INLINE ProcessGroup create_mpi_group(const JobRequest& request) {
    check_launched_by_linked_mpi(request.launch);
    MpiTransport transport(MPI_COMM_WORLD, {.timeout = request.timeout,
                                            .heartbeat_timeout = request.heartbeat_timeout,
                                            .bind_address = request.bind_address,
                                            .network_interface = request.network_interface});
    const std::shared_ptr<ControlPlane> control = transport.control();
    try {
        return ShmCommunicator(ShmTransport(std::move(transport)));
    } catch (const std::exception& error) {  // the other ranks may be waiting for this rank
        const auto* known = dynamic_cast<const Error*>(&error);
        if (known == nullptr || !known->agreed())
            control->job_state()->fail(text("rank ", request.launch.rank, ": ", error.what()));
        throw;
    }
}

}  // namespace DPTK_NAMESPACE::detail
