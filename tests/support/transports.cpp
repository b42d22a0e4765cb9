// Makes the transports between processes available to a test, whose own files need not include them.
#ifdef DPTK_WITH_MPI
#include <dptk/comm/mpi.hpp>
#endif
#ifdef DPTK_WITH_GLOO
#include <dptk/comm/gloo.hpp>
#endif
