// Curves for TensorBoard from a loop of the program's own. Rank 0 writes; the values are over all ranks.
//   mpirun -np 2 tensorboard runs/line && tensorboard --logdir runs
#include <dptk/ddp.hpp>
#include <dptk/optim/sgd.hpp>
#include <dptk/train/tensorboard_file.hpp>

#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

int main(int, char** arguments) {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::vector<float> line(2), gradient(2);  // y = line[0] x + line[1], to be fitted to y = 2 x + 1
    dptk::DistributedDataParallel ddp(group, line, gradient);
    dptk::SGD<float> sgd({.lr = 0.2});

    std::optional<dptk::TensorBoardFile> file;
    if (group.rank() == 0) {
        file.emplace(arguments[1]);
        file->text("task", "fits a line to `y = 2 x + 1`", 0);
    }
    double loss = 0;
    for (int step = 0; step < 50; ++step) {
        const float x = std::sin(static_cast<float>(2 * step + group.rank()));
        const float error = line[0] * x + line[1] - (2 * x + 1);
        gradient = {error * x, error};
        ddp.synchronize();
        sgd.step(ddp.parameters());

        loss = group.all_reduce_value(error * error / 2, dptk::ReduceOp::avg);
        if (!file) continue;
        file->scalar("loss", loss, step);
        file->scalar("line/slope", line[0], step);
        file->scalar("line/offset", line[1], step);
    }
    if (file) std::printf("50 steps, the last loss is %.5f: %s\n", loss, file->path().c_str());
}
