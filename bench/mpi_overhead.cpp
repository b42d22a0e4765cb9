// Measures the overhead of dptk over MPI: a blocking all_reduce of 4 bytes through a communicator and
// through a process group, with watchdog and heartbeat, compared with the raw call. Prints medians of
// alternating blocks and of their ratios.
//   mpirun -np 2 mpi_overhead
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include <cstdio>
#include <vector>

#include "measure.hpp"

namespace {

/// Returns the microseconds of one call, averaged over a block of calls.
template <class Call>
double block(Call&& call) {
    constexpr int calls = 2000;
    MPI_Barrier(MPI_COMM_WORLD);
    return bench::microseconds([&] {
               for (int i = 0; i < calls; ++i) call();
           }) /
           calls;
}

}  // namespace

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    dptk::MpiCommunicator communicator{dptk::MpiTransport(MPI_COMM_WORLD)};
    float value[1] = {1};
    std::vector<double> through_group, through_communicator, raw;
    for (int round = 0; round < 1000; ++round) {
        raw.push_back(
            block([&] { MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }));
        through_communicator.push_back(block([&] { communicator.all_reduce(value, dptk::ReduceOp::sum); }));
        through_group.push_back(block([&] { group.all_reduce(value, dptk::ReduceOp::sum); }));
    }
    if (group.rank() != 0) return 0;
    const auto print = [&](const char* name, const std::vector<double>& own) {
        std::vector<double> ratios;
        for (std::size_t i = 0; i < raw.size(); ++i) ratios.push_back(own[i] / raw[i]);
        std::printf("all_reduce of 4 bytes, %d ranks, %s: %.3f us | MPI_Allreduce %.3f us | ratio %.3f\n",
                    group.size(), name, bench::median(own), bench::median(raw), bench::median(ratios));
    };
    print("MpiCommunicator", through_communicator);
    print("ProcessGroup", through_group);
}
