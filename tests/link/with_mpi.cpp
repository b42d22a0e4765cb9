// A unit that brings MPI into the program.
#include <dptk/comm/mpi.hpp>

const char* transport_of_this_unit() {
    return "mpi";
}
