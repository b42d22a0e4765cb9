// The learning rate rises in the first two epochs and then falls along a cosine; the run ends early if three
// epochs in a row bring no better loss.
//   mpirun -np 2 schedule
#include <dptk/train.hpp>

#include <cstdio>

#include "circle.hpp"

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    constexpr int epochs = 40;
    // Any function of the epochs done is a schedule, also a lambda.
    const dptk::CosineSchedule schedule({.total = epochs, .final_factor = 0.01, .warmup = 2});
    if (group.rank() == 0)
        for (const double epoch : {0.0, 0.5, 1.0, 20.0, 40.0})
            std::printf("after %.1f epochs: %.3f times the learning rate\n", epoch, schedule(epoch));

    dptk::nn::Network<dptk::nn::Reference<float>> net(circle_net(), /*seed=*/1);
    dptk::Trainer trainer(group, net,
                          {.epochs = epochs, .batch_size = 16, .sgd = {.lr = 0.2, .momentum = 0.9}});
    trainer.add(dptk::LearningRate(schedule));
    trainer.add(dptk::EarlyStopping({.monitor = dptk::Monitor::loss, .patience = 3, .min_delta = 0.001}));
    trainer.add(dptk::ProgressBar(dptk::ProgressStyle::lines));
    trainer.fit(circle_points(0, 1024), circle_points(1024, 256));
}
