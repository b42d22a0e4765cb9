/// Groups over MPI. Including this header makes MPI available to init_process_group: a program that mpirun
/// has started finds its ranks, whether dptk or the program itself initialises MPI.
#pragma once

#include "dptk/comm/mpi/transport.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/shm.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Made from any MPI_Comm: MpiCommunicator(MpiTransport(comm)) works on a duplicate of it.
using MpiCommunicator = BasicCommunicator<MpiTransport>;

namespace detail {

/// mpirun's ranks; srun's, where MPI finds as many; and those of a program that has initialised MPI itself.
[[nodiscard]] Fit mpi_fit(const JobRequest& request);

[[nodiscard]] ProcessGroup create_mpi_group(const JobRequest& request);

inline const bool mpi_is_registered = register_transport({"mpi", mpi_fit, create_mpi_group, nullptr});

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/mpi.ipp"
#endif
