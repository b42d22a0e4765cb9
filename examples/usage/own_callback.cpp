// A callback of the program's own: it ends the run when the loss is small enough. Callbacks are called on all
// ranks at the same points, and see results over all ranks.
//   mpirun -np 2 own_callback
#include <dptk/train.hpp>

#include <cstdio>

#include "circle.hpp"

class StopAtLoss : public dptk::Callback {
  public:
    explicit StopAtLoss(double loss) : loss_(loss) {}

    void epoch_end(dptk::TrainingRun& run) override {
        const dptk::TrainingStatus& status = run.status();
        if (run.group().rank() == 0)
            std::printf("epoch %d: loss %.4f\n", status.epoch + 1, status.training.loss);
        if (status.training.loss < loss_) run.stop("the loss is small enough");
    }

  private:
    double loss_;
};

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    dptk::nn::Network<dptk::nn::Reference<float>> net(circle_net(), /*seed=*/1);
    dptk::Trainer trainer(group, net, {.epochs = 50, .batch_size = 16, .sgd = {.lr = 0.2, .momentum = 0.9}});
    trainer.add(StopAtLoss(0.1));
    const dptk::TrainingStatus status = trainer.fit(circle_points(0, 1024), circle_points(1024, 256));
    if (group.rank() == 0)
        std::printf("%s, accuracy %.2f\n", status.stop_reason.c_str(), status.test.accuracy);
}
