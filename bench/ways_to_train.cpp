// A training step of two replicas in one process, with one compute thread each, beside
// DistributedDataParallel's over thread ranks: DataParallel, and ReproducibleDataParallel with as many shards
// as ranks. Medians of alternating rounds.
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

namespace {

#ifdef DPTK_WITH_ONEDNN
using Backend = dptk::nn::Cpu;
#else
using Backend = dptk::nn::Reference<float>;
#endif

constexpr std::size_t ranks = 2;
constexpr std::size_t batch_of_rank = 32;

/// A replica, and a batch that it trains on again and again.
struct Replica {
    dptk::nn::Sequential<Backend> net;
    dptk::nn::Tensor<float> input;
    dptk::nn::Tensor<float> output_gradient;
    std::vector<std::uint8_t> labels;
    dptk::SGD<float> sgd{{.lr = 1e-4, .momentum = 0.9}};

    Replica(const std::string& model, const dptk::nn::Shape& image)
        : net(dptk::nn::make_model(model, 10), image, 1), labels(batch_of_rank) {
        dptk::nn::Shape shape{batch_of_rank};
        shape.insert(shape.end(), image.begin(), image.end());
        input.resize(shape);
        for (std::size_t i = 0; i < input.values().size(); ++i)
            input.values()[i] = static_cast<float>(i % 97) / 97;
        for (std::size_t i = 0; i < batch_of_rank; ++i) labels[i] = static_cast<std::uint8_t>(i % 10);
    }

    void forward_backward() {
        static_cast<void>(dptk::nn::softmax_cross_entropy(net.forward(input), labels, output_gradient));
        net.backward(output_gradient);
    }

    void step(const std::vector<dptk::ParameterRef>& parameters) {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const dptk::ParameterRef& parameter = parameters[i];
            sgd.step(i, std::span(static_cast<float*>(parameter.value), parameter.count),
                     std::span<const float>(static_cast<float*>(parameter.gradient), parameter.count));
        }
    }
};

void measure(dptk::ProcessGroup& group, const std::string& model, const dptk::nn::Shape& image) {
#ifdef DPTK_WITH_ONEDNN
    dptk::nn::cpu::set_num_threads(1);
#endif
    Replica of_ddp(model, image);
    dptk::DistributedDataParallel ddp(group, of_ddp.net);
    for (std::size_t i = 0; i < of_ddp.net.parameter_count(); ++i)
        of_ddp.net.set_gradient_storage(i, ddp.gradient_memory<float>(i));
    Replica of_shards(model, image);
    dptk::ReproducibleDataParallel reproducible(group, dptk::ParameterSource(of_shards.net), ranks);

    // One rank drives all replicas, while the others wait.
    std::vector<Replica> replicas;
    std::optional<dptk::DataParallel> parallel;
    if (group.rank() == 0) {
        for (std::size_t r = 0; r < ranks; ++r) replicas.emplace_back(model, image);
        std::vector<dptk::ParameterSource> sources;
        for (Replica& replica : replicas) sources.emplace_back(replica.net);
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
