/// Registers the MPI transport with init_process_group, which then connects the ranks that mpirun has
/// started. Either dptk or the program itself initializes MPI.
#pragma once

#include "dptk/comm/init.hpp"
#include "dptk/comm/mpi/transport.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/shm.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A communicator over MPI. MpiCommunicator(MpiTransport(comm)) duplicates any MPI_Comm and uses the
/// duplicate.
using MpiCommunicator = BasicCommunicator<MpiTransport>;

namespace detail {

/// Returns how well MPI fits the job. MPI fits if the program requests MPI, or if mpirun has started the
/// ranks. MPI fits ranks that srun has started if MPI_Comm_size returns their number, and other ranks if the
/// program has initialized MPI itself. MPI does not fit if the program specifies another rendezvous.
[[nodiscard]] Fit mpi_fit(const JobRequest& request);

[[nodiscard]] ProcessGroup create_mpi_group(const JobRequest& request);

inline const bool mpi_is_registered = register_transport({"mpi", mpi_fit, create_mpi_group, nullptr});

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/mpi.ipp"
#endif
