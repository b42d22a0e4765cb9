// A translation unit that registers the MPI transport.
#include <dptk/comm/mpi.hpp>

const char* transport_of_this_unit() {
    return "mpi";
}
