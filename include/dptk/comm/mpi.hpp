/// Groups over MPI. Including this header makes MPI available to init_process_group: a program that mpirun
/// has started finds its ranks, whether dptk or the program itself initialises MPI.
#pragma once

#include "dptk/comm/mpi_transport.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"

namespace dptk {

/// Made from any MPI_Comm: MpiCommunicator(MpiTransport(comm)) works on a duplicate of it.
using MpiCommunicator = BasicCommunicator<MpiTransport>;

namespace detail {

[[nodiscard]] inline bool mpi_is_initialized() {
    int initialized = 0;
    MPI_Initialized(&initialized);
    return initialized != 0;
}

/// mpirun's ranks, srun's, and those of a program that has initialised MPI itself.
[[nodiscard]] inline bool mpi_serves(const LaunchEnvironment& launch) {
    return launch.launcher == Launcher::mpi || launch.launcher == Launcher::slurm || mpi_is_initialized();
}

/// A program started by another MPI's mpirun runs as so many groups of one rank: MPI_Comm_size tells.
inline void check_launched_by_linked_mpi(const LaunchEnvironment& launch) {
    if (launch.launcher == Launcher::none) return;
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == launch.world_size) return;
    throw BackendError(text("rank ", launch.rank, ": started as one of ", launch.world_size, " ranks by ",
                            launch.source, ", but MPI_Comm_size says ", size,
                            ": this program is linked with ", MpiEnvironment::library(),
                            ", which that launcher does not serve. Start it with the mpirun of ",
                            MpiEnvironment::library(), ", or build it with the launcher's MPI"));
}

[[nodiscard]] inline ProcessGroup create_mpi_group(const LaunchEnvironment& launch) {
    static_cast<void>(MpiEnvironment::get());
    check_launched_by_linked_mpi(launch);
    return MpiCommunicator(MpiTransport(MPI_COMM_WORLD));
}

inline const bool mpi_is_registered = register_transport({"mpi", mpi_serves, create_mpi_group});

}  // namespace detail

}  // namespace dptk
