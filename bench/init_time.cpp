// Measures how long init_process_group takes from the start of main, as the maximum over all ranks.
//   mpirun -np 4 init_time        dptk-run --nproc-per-node 4 -- init_time
#include <dptk/ddp.hpp>
#ifdef DPTK_WITH_MPI
#include <dptk/comm/mpi.hpp>
#endif
#ifdef DPTK_WITH_GLOO
#include <dptk/comm/gloo.hpp>
#endif

#include <cstdio>
#include <optional>

#include "measure.hpp"

int main() {
    std::optional<dptk::ProcessGroup> group;
    const double own = bench::microseconds([&] { group.emplace(dptk::init_process_group()); });
    const double longest = group->all_reduce_value(own, dptk::ReduceOp::max);
    if (group->rank() == 0)
        std::printf("init_time_%d_%s %.1f ms\n", group->size(), group->backend().c_str(), longest / 1000);
}
