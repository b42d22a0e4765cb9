// Measures a training step under DistributedDataParallel, and under ShardedOptimizer with separate and
// fused steps, compared with the same step without communication. Trainer runs fused steps by default where
// ranks share memory. A step with only a barrier shows how long the faster ranks wait for the others in any
// case. All ranks run at once, with one compute thread each. A step is forward, backward, synchronize with
// the number of samples, and SGD with momentum, always on the same images. Prints medians of alternating
// blocks of steps.
//   mpirun -np 2 train_step        dptk-run --nproc-per-node 2 -- train_step
#ifdef DPTK_WITH_MPI
#include <dptk/comm/mpi.hpp>
#endif
#ifdef DPTK_WITH_GLOO
#include <dptk/comm/gloo.hpp>
#endif
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/train.hpp>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "measure.hpp"
#include "training.hpp"

namespace {

struct Model {
    std::string name;
    dptk::nn::Graph graph;
    std::size_t batch;
};

/// A network under a ShardedOptimizer.
struct ShardedTraining {
    bench::Training training;
    dptk::ShardedOptimizer<dptk::SGD<float>> sharded;

    ShardedTraining(dptk::ProcessGroup& group, const Model& model, bool fused)
        : training(model.graph, model.batch),
          sharded(group, training.net, training.sgd, {},
                  {.fused_step = fused ? dptk::FusedStep::yes : dptk::FusedStep::no,
                   .parameters_as_bucket_view = true}) {
        for (std::size_t i = 0; i < training.net.parameter_count(); ++i) {
            training.net.set_gradient_storage(i, sharded.gradient_memory(i));
            training.net.set_value_storage(i, sharded.value_memory(i));
        }
    }

    void step() {
        training.forward_backward();
        sharded.synchronize(training.labels.size());
        sharded.step();
    }
};

void measure(dptk::ProcessGroup& group, const Model& model) {
    bench::Training alone(model.graph, model.batch);
    dptk::ProcessGroup self = dptk::SelfCommunicator(dptk::SelfTransport{});
    const dptk::DistributedDataParallel own(self, alone.net);
    bench::Training together(model.graph, model.batch);
    dptk::DistributedDataParallel ddp(group, together.net);
    for (std::size_t i = 0; i < together.net.parameter_count(); ++i)
        together.net.set_gradient_storage(i, ddp.gradient_memory<float>(i));

    ShardedTraining separate(group, model, false);
    ShardedTraining fused(group, model, true);

    std::vector<double> local, distributed, ratios, barrier_ratios, separate_times, fused_times, fused_ratios;
    for (int round = 0; round < 21; ++round) {
        constexpr int steps = 5;
        const auto time = [&](auto&& step) {
            step();  // fills the caches
            group.barrier();
            return bench::microseconds([&] {
                       for (int s = 0; s < steps; ++s) step();
                   }) /
                   steps;
        };
        local.push_back(time([&] {
            alone.forward_backward();
            alone.step(own.parameters());
        }));
        const double with_barrier = time([&] {
            alone.forward_backward();
            group.barrier();
            alone.step(own.parameters());
        });
        barrier_ratios.push_back(with_barrier / local.back());
        distributed.push_back(time([&] {
            together.forward_backward();
            ddp.synchronize(model.batch);
            together.step(ddp.parameters());
        }));
        ratios.push_back(distributed.back() / local.back());
        separate_times.push_back(time([&] { separate.step(); }));
        fused_times.push_back(time([&] { fused.step(); }));
        fused_ratios.push_back(fused_times.back() / local.back());
    }
    if (group.rank() != 0) return;
    std::printf("train_step_%s %.0f us\n", model.name.c_str(), bench::median(distributed));
    std::printf("ddp_overhead_%s %.1f %% | local step %.0f us | %.3f\n", model.name.c_str(),
                100 * (bench::median(ratios) - 1), bench::median(local), bench::median(ratios));
    std::printf("fused_overhead_%s %.1f %%\n", model.name.c_str(), 100 * (bench::median(fused_ratios) - 1));
    std::printf("barrier_overhead_%s %.1f %%\n", model.name.c_str(),
                100 * (bench::median(barrier_ratios) - 1));
    const auto print_beside_ddp = [&](const char* name, const std::vector<double>& times) {
        const double ddp_step = bench::median(distributed);
        std::printf("%s_%s %.0f us | ddp %.0f us | %.3f\n", name, model.name.c_str(), bench::median(times),
                    ddp_step, ddp_step / bench::median(times));
    };
    print_beside_ddp("sharded_step", separate_times);
    print_beside_ddp("fused_step", fused_times);
    std::fflush(stdout);
}

}  // namespace

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
#ifdef DPTK_WITH_ONEDNN
    dptk::nn::cpu::set_num_threads(1);
#endif
    using namespace dptk::nn;
    const ModelOptions digits{.input = {1, 28, 28}, .classes = 10};
    const Graph large =
        sequential(digits.input, {Flatten{}, Linear{2048}, ReLU{}, Linear{2048}, ReLU{}, Linear{10}});
    measure(group, {"mlp", mlp(digits), 64});
    measure(group, {"mlp_large", large, 64});
    measure(group, {"convnet", convnet({.input = {3, 32, 32}, .classes = 10}), 32});
}
