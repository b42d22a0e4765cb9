// Function bodies of the MPI transport. See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/comm/mpi.ipp"
#include "dptk/comm/mpi/call_timer.ipp"
#include "dptk/comm/mpi/control.ipp"
#include "dptk/comm/mpi/environment.ipp"
#include "dptk/comm/mpi/transport.ipp"
#include "dptk/comm/mpi/types.ipp"
#include "dptk/comm/mpi/work.ipp"
