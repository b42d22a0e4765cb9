// Compares training steps of two replicas in one process, with one compute thread each: DataParallel, and
// ReproducibleDataParallel with as many shards as ranks, with DistributedDataParallel over thread ranks.
// Prints medians of alternating rounds.
#include <dptk/ddp/data_parallel.hpp>
#include <dptk/train.hpp>

#include <cstdio>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "measure.hpp"
#include "training.hpp"

namespace {

constexpr std::size_t ranks = 2;
constexpr std::size_t batch_of_rank = 32;

void measure(dptk::ProcessGroup& group, const std::string& model, const dptk::nn::Shape& image) {
#ifdef DPTK_WITH_ONEDNN
    dptk::nn::cpu::set_num_threads(1);
#endif
    const dptk::nn::Graph graph = dptk::nn::make_model(model, {.input = image, .classes = 10});
    bench::Training of_ddp(graph, batch_of_rank);
    dptk::DistributedDataParallel ddp(group, of_ddp.net);
    for (std::size_t i = 0; i < of_ddp.net.parameter_count(); ++i)
        of_ddp.net.set_gradient_storage(i, ddp.gradient_memory<float>(i));
    bench::Training of_shards(graph, batch_of_rank);
    dptk::ReproducibleDataParallel reproducible(group, dptk::ParameterSource(of_shards.net), ranks);

    // One rank drives all replicas, while the others wait.
    std::vector<bench::Training> replicas;
    std::optional<dptk::DataParallel> parallel;
    if (group.rank() == 0) {
        for (std::size_t r = 0; r < ranks; ++r) replicas.emplace_back(graph, batch_of_rank);
        std::vector<dptk::ParameterSource> sources;
        for (bench::Training& replica : replicas) sources.emplace_back(replica.net);
        parallel.emplace(std::move(sources));
    }
    std::vector<std::size_t> batch(ranks * batch_of_rank);
    std::iota(batch.begin(), batch.end(), 0);

    std::vector<double> times[3];
    for (int round = 0; round < 15; ++round) {
        constexpr int steps = 10;
        const auto time = [&](std::size_t way, auto&& step) {
            group.barrier();
            const double all = bench::microseconds([&] {
                for (int s = 0; s < steps; ++s) step();
            });
            times[way].push_back(all / steps);
        };
        time(0, [&] {
            of_ddp.forward_backward();
            ddp.synchronize();
            of_ddp.step(ddp.parameters());
        });
        time(1, [&] {
            if (!parallel) return;
            parallel->step(batch, [&](std::size_t replica, std::span<const std::size_t>) {
#ifdef DPTK_WITH_ONEDNN
                dptk::nn::cpu::set_num_threads(1);
#endif
                replicas[replica].forward_backward();
            });
            replicas[0].step(parallel->parameters());
        });
        time(2, [&] {
            of_shards.forward_backward();
            reproducible.add_shard(batch_of_rank);
            reproducible.synchronize();
            of_shards.step(reproducible.parameters());
        });
    }
    if (group.rank() != 0) return;
    const double base = bench::median(times[0]);
    const char* const names[] = {"ddp", "data_parallel", "reproducible"};
    for (std::size_t way = 1; way < 3; ++way)
        std::printf("train_step_%s_%s %.0f us | ddp %.0f us | ratio %.2f\n", model.c_str(), names[way],
                    bench::median(times[way]), base, bench::median(times[way]) / base);
}

}  // namespace

int main() {
    dptk::launch_threads(static_cast<int>(ranks), [](dptk::ProcessGroup& group) {
        measure(group, "mlp", {1, 28, 28});
        measure(group, "lenet", {1, 28, 28});
        measure(group, "convnet", {3, 32, 32});
    });
}
