// A translation unit that registers the MPI transport.
#include <dptk/comm/mpi.hpp>

int sum_in_unit_with_mpi(dptk::ProcessGroup& group, int value) {
    return group.all_reduce_value(value);
}
