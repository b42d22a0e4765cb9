// Measures all_reduce of f32 by each algorithm and by the transport's native one, over message size.
// Buffers are rewritten before each run; the result is the median of alternating runs. Each output line
// has: transport, ranks, algorithm, bytes, microseconds. bench/plot-all-reduce plots them.
//   all_reduce threads RANKS        mpirun -np 4 all_reduce        dptk-run --nproc-per-node 4 -- all_reduce
#include <dptk/ddp.hpp>
#ifdef DPTK_WITH_MPI
#include <dptk/comm/mpi.hpp>
#endif
#ifdef DPTK_WITH_GLOO
#include <dptk/comm/gloo.hpp>
#endif

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "measure.hpp"

namespace {

using dptk::AllReduceAlgorithm;

constexpr std::array algorithms = {AllReduceAlgorithm::automatic, AllReduceAlgorithm::ring,
                                   AllReduceAlgorithm::tree, AllReduceAlgorithm::recursive_doubling,
                                   AllReduceAlgorithm::slices};

const char* name_of(AllReduceAlgorithm algorithm) {
    return algorithm == AllReduceAlgorithm::automatic ? "own" : dptk::algorithm_name(algorithm).data();
}

void measure(dptk::ProcessGroup& group) {
    for (std::size_t bytes = 64; bytes <= std::size_t{64} << 20; bytes *= 4) {
        std::vector<float> data(bytes / sizeof(float));
        const int rounds = bytes > std::size_t{1} << 20 ? 5 : 21;
        std::array<std::vector<double>, algorithms.size()> times;
        for (int round = 0; round < rounds; ++round) {
            for (std::size_t i = 0; i < algorithms.size(); ++i) {
                group.set_all_reduce_algorithm(algorithms[i]);
                std::ranges::fill(data, 1.0F);
                group.barrier();
                times[i].push_back(bench::microseconds([&] { group.all_reduce(data); }));
            }
        }
        if (group.rank() != 0) continue;
        for (std::size_t i = 0; i < algorithms.size(); ++i)
            std::printf("%s %d %s %zu %.2f\n", group.backend().c_str(), group.size(), name_of(algorithms[i]),
                        bytes, bench::median(times[i]));
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3 && std::string(argv[1]) == "threads") {
        dptk::launch_threads(std::stoi(argv[2]), measure);
    } else {
        dptk::ProcessGroup group = dptk::init_process_group();
        measure(group);
    }
}
