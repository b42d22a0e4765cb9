// The bodies of dptk over MPI.
#include "separate_compilation.hpp"

#include "dptk/comm/mpi.ipp"
#include "dptk/comm/mpi_control.ipp"
#include "dptk/comm/mpi_environment.ipp"
#include "dptk/comm/mpi_transport.ipp"
#include "dptk/comm/mpi_types.ipp"
#include "dptk/comm/mpi_work.ipp"
