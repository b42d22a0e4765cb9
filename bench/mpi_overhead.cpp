// What dptk's group adds to MPI: a blocking all_reduce of 4 bytes, watchdog and heartbeat on, beside the raw
// call.
//   mpirun -np 2 mpi_overhead
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

/// Microseconds of one call, on average over a block of them.
template <class Call>
double block(Call&& call) {
    constexpr int calls = 2000;
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = clock_type::now();
    for (int i = 0; i < calls; ++i) call();
    return std::chrono::duration<double, std::micro>(clock_type::now() - begin).count() / calls;
}

double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
    return values[values.size() / 2];
}

}  // namespace

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    float value[1] = {1};
    std::vector<double> own, raw;
    for (int round = 0; round < 200; ++round) {
        raw.push_back(
            block([&] { MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD); }));
        own.push_back(block([&] { group.all_reduce(value, dptk::ReduceOp::max); }));
    }
    if (group.rank() != 0) return 0;
    std::printf("all_reduce of 4 bytes, %d ranks: %.3f us | MPI_Allreduce %.3f us | ratio %.3f\n",
                group.size(), median(own), median(raw), median(own) / median(raw));
}
