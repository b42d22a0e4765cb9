// A program of several translation units: this one includes no transport, each of the others includes one.
#include <dptk/comm/init.hpp>

#include <cstdio>

#ifdef UNIT_WITH_MPI
int sum_in_unit_with_mpi(dptk::ProcessGroup& group, int value);
#endif
#ifdef UNIT_WITH_GLOO
int sum_in_unit_with_gloo(dptk::ProcessGroup& group, int value);
#endif

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    bool right = group.all_reduce_value(1) == group.size();
#ifdef UNIT_WITH_MPI
    right = right && sum_in_unit_with_mpi(group, 2) == 2 * group.size();
#endif
#ifdef UNIT_WITH_GLOO
    right = right && sum_in_unit_with_gloo(group, 3) == 3 * group.size();
#endif
    std::printf("rank %d of %d over %s\n", group.rank(), group.size(), group.backend().c_str());
    return right ? 0 : 1;
}
