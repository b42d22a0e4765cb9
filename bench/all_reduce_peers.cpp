// Compares all_reduce of f32 with MPI_Allreduce and Gloo in one run, in memory that the group has allocated
// and in the program's own; and with the same sums without communication, which are the limit of memory
// bandwidth. Buffers are rewritten before each operation, as in training; the result is the median of
// alternating runs. A barrier of dptk precedes each operation and is not timed.
//   mpirun -np 2 all_reduce_peers [BYTES...]
#include <dptk/comm/algorithms/local_reduce.hpp>
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#ifdef DPTK_WITH_GLOO
#include "gloo_collectives.hpp"
#endif
#include "measure.hpp"

namespace {

/// The sums of one rank in its own memory, over as many bytes as it reads and writes in all_reduce.
class OwnSums {
  public:
    OwnSums(std::size_t count, int ranks) : parts_(static_cast<std::size_t>(ranks)) {
        for (auto& part : parts_) part.resize(count / parts_.size() + 1);
    }

    void rewrite() {
        for (auto& part : parts_) std::ranges::fill(part, 1.0F);
    }

    void run() {
        std::vector<const void*> sources;
        std::vector<void*> results;
        for (auto& part : parts_) {
            sources.push_back(part.data());
            results.push_back(part.data());
        }
        dptk::detail::sum_vectors<float>({sources, results, parts_[0].size()});
    }

  private:
    std::vector<std::vector<float>> parts_;
};

/// An operation to measure: rewrites its buffer, and reduces it.
struct Operation {
    std::function<void()> rewrite;
    std::function<void()> reduce;
    std::vector<double> times = {};
};

/// Measures the operations in turn. The number of rounds depends on the bytes and on the time of a round.
void alternate(dptk::ProcessGroup& group, std::size_t bytes, std::initializer_list<Operation*> operations) {
    std::size_t rounds = std::clamp<std::size_t>((std::size_t{1} << 28) / bytes, 5, 1001);
    constexpr std::size_t trial = 5;
    constexpr double longest = 2e6;
    double spent = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
        spent += bench::microseconds([&] {
            for (Operation* operation : operations) {
                operation->rewrite();
                group.barrier();
                operation->times.push_back(bench::microseconds(operation->reduce));
            }
        });
        if (round + 1 != trial) continue;
        // A round may take long if there are more ranks than CPU cores.
        const double one = group.all_reduce_value(spent, dptk::ReduceOp::max) / trial;
        rounds = std::clamp(static_cast<std::size_t>(longest / one), trial, rounds);
    }
}

void measure(dptk::ProcessGroup& group, std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    const dptk::Allocation<float> memory = group.allocate<float>(count);
    std::vector<float> own_memory(count);
    OwnSums sums(count, group.size());
    const auto rewrite_own = [&] { std::ranges::fill(own_memory, 1.0F); };
    const auto print = [&](const char* name, const Operation& ours, const char* peer,
                           const Operation& theirs) {
        const double us = bench::median(ours.times);
        const double peer_us = bench::median(theirs.times);
        if (group.rank() == 0)
            std::printf("%s_%zu_%d %.2f us | %s %.2f us | %.2f\n", name, bytes, group.size(), us, peer,
                        peer_us, peer_us / us);
    };

    Operation allocated{[&] { std::ranges::fill(memory, 1.0F); }, [&] { group.all_reduce(memory); }};
    Operation own{rewrite_own, [&] { group.all_reduce(own_memory); }};
    Operation mpi{rewrite_own, [&] {
                      MPI_Allreduce(MPI_IN_PLACE, own_memory.data(), static_cast<int>(count), MPI_FLOAT,
                                    MPI_SUM, MPI_COMM_WORLD);
                  }};
    Operation alone{[&] { sums.rewrite(); }, [&] { sums.run(); }};
    alternate(group, bytes, {&allocated, &own, &mpi, &alone});
    print("allreduce", allocated, "MPI", mpi);
    print("allreduce", allocated, "copy_limit", alone);
    print("allreduce_own_memory", own, "MPI", mpi);
#ifdef DPTK_WITH_GLOO
    // Gloo is measured apart: its threads slow down operations that are measured after it.
    if (group.size() > 1) {
        static bench::Gloo collectives(group);
        Operation gloo{rewrite_own, [&] { collectives.all_reduce(own_memory); }};
        allocated.times.clear();
        alternate(group, bytes, {&allocated, &gloo});
        print("allreduce", allocated, "Gloo", gloo);
    }
#endif
    if (group.rank() == 0) std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::vector<std::size_t> sizes;
    for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    if (sizes.empty()) {
        for (const std::size_t kib :
             {1U, 4U, 16U, 64U, 256U, 1024U, 4096U, 25U * 1024, 64U * 1024, 256U * 1024})
            sizes.push_back(kib * 1024);
    }
    for (const std::size_t bytes : sizes) measure(group, bytes);
}
