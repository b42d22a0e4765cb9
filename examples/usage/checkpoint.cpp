// A run that is interrupted within an epoch, and continues from its checkpoint. It ends with the same loss as
// a run that was never interrupted.
//   mpirun -np 2 checkpoint FOLDER
#include <dptk/train.hpp>
#include <dptk/train/checkpoint/checkpoint.hpp>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "circle.hpp"

namespace fs = std::filesystem;

// Ends a run as a signal would.
class StopAtStep : public dptk::Callback {
  public:
    explicit StopAtStep(std::int64_t step) : step_(step) {}

    void batch_end(dptk::TrainingRun& run) override {
        if (run.status().step == step_) run.stop("interrupted");
    }

  private:
    std::int64_t step_;
};

// Trains 4 epochs, or until a step. Continues if the folder has a checkpoint.
dptk::TrainingStatus train(dptk::ProcessGroup& group, const fs::path& folder, std::int64_t last_step) {
    dptk::nn::Network<dptk::nn::Reference<float>> net(circle_net(), /*seed=*/1);
    dptk::Trainer trainer(group, net, {.epochs = 4, .batch_size = 16, .sgd = {.lr = 0.2, .momentum = 0.9}});
    trainer.add(StopAtStep(last_step));
    trainer.add(dptk::Checkpoint(
        folder, {.remark = [](const std::string& remark) { std::printf("%s\n", remark.c_str()); }}));
    return trainer.fit(circle_points(0, 512), circle_points(512, 128));
}

int main(int, char** arguments) {
    dptk::ProcessGroup group = dptk::init_process_group();
    const fs::path folder = arguments[1];  // only rank 0 uses it
    if (group.rank() == 0) {
        fs::remove_all(folder / "whole");
        fs::remove_all(folder / "parts");
    }
    const dptk::TrainingStatus whole = train(group, folder / "whole", -1);
    const dptk::TrainingStatus first = train(group, folder / "parts", 25);
    const dptk::TrainingStatus second = train(group, folder / "parts", -1);
    if (group.rank() == 0)
        std::printf("interrupted after step %d of %d, continued: %s\n", static_cast<int>(first.step),
                    static_cast<int>(whole.step),
                    second.training.loss == whole.training.loss ? "the same loss" : "another loss");
}
