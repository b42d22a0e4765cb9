// all_reduce of f32 beside MPI_Allreduce in one run: in memory that the group has allocated, and in the
// program's own. Buffers are rewritten before each operation, as a trainer does; medians of alternating runs.
//   mpirun -np 2 all_reduce_peers [LARGEST_BYTES]
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "measure.hpp"

int main(int argc, char** argv) {
    dptk::ProcessGroup group = dptk::init_process_group();
    const std::size_t largest = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{64} << 20;
    for (std::size_t bytes = 1024; bytes <= largest; bytes *= 4) {
        const std::size_t count = bytes / sizeof(float);
        dptk::Allocation<float> shared = group.allocate<float>(count);
        std::vector<float> own(count);
        const std::size_t rounds = std::clamp<std::size_t>((std::size_t{1} << 28) / bytes, 5, 2001);
        std::array<std::vector<double>, 3> times;
        const auto measure = [&](std::size_t which, auto& data, auto&& reduce) {
            std::ranges::fill(data, 1.0F);
            group.barrier();
            times[which].push_back(bench::microseconds(reduce));
        };
        for (std::size_t round = 0; round < rounds; ++round) {
            measure(0, shared, [&] { group.all_reduce(shared); });
            measure(1, own, [&] { group.all_reduce(own); });
            measure(2, own, [&] {
                MPI_Allreduce(MPI_IN_PLACE, own.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                              MPI_COMM_WORLD);
            });
        }
        if (group.rank() != 0) continue;
        const double peer = bench::median(times[2]);
        for (const auto& [which, name] :
             {std::pair{0U, "allreduce"}, std::pair{1U, "allreduce_own_memory"}}) {
            const double us = bench::median(times[which]);
            std::printf("%s_%zu_%d %.2f us | MPI %.2f us | %.2f\n", name, bytes, group.size(), us, peer,
                        peer / us);
        }
        std::fflush(stdout);
    }
}
