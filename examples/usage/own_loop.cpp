// A training loop of the program's own, without Trainer: network, loader, DistributedDataParallel, schedule
// and optimizer, each of which can be replaced.
//   mpirun -np 2 own_loop
#include <dptk/data/data_loader.hpp>
#include <dptk/ddp.hpp>
#include <dptk/nn/loss.hpp>
#include <dptk/nn/network.hpp>
#include <dptk/nn/reference/backend.hpp>
#include <dptk/optim/schedule.hpp>
#include <dptk/optim/sgd.hpp>

#include <cstdio>

#include "circle.hpp"

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    const Points training = circle_points(0, 1024), test = circle_points(1024, 250);

    dptk::nn::Network<dptk::nn::Reference<float>> net(circle_net(), /*seed=*/1);
    dptk::DistributedDataParallel ddp(group, net, {.ready = dptk::Ready::marked});
    constexpr int epochs = 10;
    constexpr double lr = 0.2;
    const dptk::CosineSchedule schedule({.total = epochs, .warmup = 1});
    dptk::SGD<float> sgd({.lr = lr, .momentum = 0.9});

    dptk::DistributedSampler sampler(training, group, {.seed = 7});
    dptk::DataLoader loader(training, sampler, {.batch_size = 16, .workers = 1});
    dptk::Tensor<float> gradient;
    for (int epoch = 0; epoch < epochs; ++epoch) {
        sampler.set_epoch(epoch);  // another order
        sgd.set_lr(lr * schedule(epoch));
        for (const auto& [points, labels] : loader) {
            ddp.begin_step(labels.size());
            dptk::nn::softmax_cross_entropy(net.forward(points), labels, gradient);
            net.backward(gradient, [&](std::size_t parameter) { ddp.mark_ready(parameter); });
            ddp.synchronize();  // averages over the samples of all ranks
            ddp.clip_grad_norm(1);
            sgd.step(ddp.parameters());
        }
    }

    // Each test sample once, although the ranks' shares differ in size.
    dptk::DistributedSampler order(test, group, {.shuffle = false, .padding = dptk::Padding::none});
    dptk::DataLoader batches(test, order, {.batch_size = 50, .workers = 0});
    net.set_mode(dptk::nn::Mode::evaluate);
    std::size_t correct = 0;
    for (const auto& [points, labels] : batches)
        correct += *dptk::nn::softmax_cross_entropy(net.forward(points), labels, gradient).correct;
    correct = group.all_reduce_value(correct);
    if (group.rank() == 0) std::printf("%zu of %zu test points are correct\n", correct, test.size());
}
