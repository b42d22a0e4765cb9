// all_reduce of f32 in memory that the group has allocated, and in the program's own, beside MPI_Allreduce
// and Gloo in one run; and what the same sums take without any communication, which is what memory allows.
// Buffers are rewritten before each operation, as a trainer does; medians of alternating runs. dptk's own
// barrier comes before each, and is not in the figure.
//   mpirun -np 2 all_reduce_peers [BYTES...]
#include <dptk/comm/local_reduce.hpp>
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>
#ifdef DPTK_WITH_GLOO
#include <dptk/comm/gloo.hpp>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "measure.hpp"

namespace {

/// The sums of one rank, over as many bytes as it reads and writes in all_reduce, in its own memory.
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

void measure(dptk::ProcessGroup& group, std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    const dptk::Allocation<float> shared = group.allocate<float>(count);
    std::vector<float> own(count);
    OwnSums sums(count, group.size());
#ifdef DPTK_WITH_GLOO
    static std::unique_ptr<dptk::GlooTransport> gloo;
    if (!gloo && group.size() > 1) {
        gloo = std::make_unique<dptk::GlooTransport>(
            dptk::GlooOptions{.rank = group.rank(),
                              .size = group.size(),
                              .store = group.channel().control().store(),
                              .name = "bench"});
    }
#endif
    std::size_t rounds = std::clamp<std::size_t>((std::size_t{1} << 28) / bytes, 5, 1001);
    constexpr double longest = 2e6;
    double spent = 0;
    std::array<std::vector<double>, 5> times;
    const auto time = [&](std::size_t which, auto&& rewrite, auto&& reduce) {
        rewrite();
        group.barrier();
        times[which].push_back(bench::microseconds(reduce));
    };
    const auto rewrite_own = [&] { std::ranges::fill(own, 1.0F); };
    for (std::size_t round = 0; round < rounds; ++round) {
        if (round == 5) {  // of which each may take long, where there are more ranks than processors
            const double one = group.all_reduce_value(spent, dptk::ReduceOp::max) / 5;
            rounds = std::clamp(static_cast<std::size_t>(longest / one), std::size_t{5}, rounds);
        }
        const auto begin = std::chrono::steady_clock::now();
        time(
            0, [&] { std::ranges::fill(shared, 1.0F); }, [&] { group.all_reduce(shared); });
        time(1, rewrite_own, [&] { group.all_reduce(own); });
        time(2, rewrite_own, [&] {
            MPI_Allreduce(MPI_IN_PLACE, own.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD);
        });
        time(
            3, [&] { sums.rewrite(); }, [&] { sums.run(); });
#ifdef DPTK_WITH_GLOO
        if (gloo && (round < 21 || bytes <= 65536)) {
            time(4, rewrite_own, [&] {
                gloo->all_reduce({own.data(), count, dptk::DType::f32, {}, 0}, dptk::ReduceOp::sum);
            });
        }
#endif
        spent += std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    }
    if (group.rank() != 0) return;
    const auto print = [&](const char* name, std::size_t which, const char* peer, std::size_t other) {
        if (times[other].empty()) return;
        const double us = bench::median(times[which]);
        const double theirs = bench::median(times[other]);
        std::printf("%s_%zu_%d %.2f us | %s %.2f us | %.2f\n", name, bytes, group.size(), us, peer, theirs,
                    theirs / us);
    };
    print("allreduce", 0, "MPI", 2);
    print("allreduce", 0, "Gloo", 4);
    print("allreduce", 0, "copy_limit", 3);
    print("allreduce_own_memory", 1, "MPI", 2);
    std::fflush(stdout);
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
