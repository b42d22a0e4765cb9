// Trains a network on handwritten digits over a custom transport, the pipes of pipe_transport.hpp. The
// program needs no launcher, since it forks its ranks itself. The argument is the number of ranks, 2 by
// default:
//   train_over_pipes 4
// The samples of each step do not depend on the number of ranks, so that any number of ranks prints the same
// losses.
#include <dptk/data/readers/idx_images.hpp>
#include <dptk/train.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "fork_ranks.hpp"
#include "pipe_transport.hpp"

namespace {

constexpr int epochs = 15;
constexpr int samples_per_step = 60;  // of all ranks together

dptk::ImageDataset read_digits(const std::string& part) {
    const std::string prefix = std::string(DPTK_EXAMPLE_DATA_DIR) + "/digits/" + part;
    return dptk::read_idx_images(prefix + "-images-idx3-ubyte.gz", prefix + "-labels-idx1-ubyte.gz",
                                 {.classes = 10});
}

// The training does not depend on the transport.
void train(dptk::ProcessGroup& group) {
    const dptk::ImageDataset digits = dptk::on_all_or_none(group, [] { return read_digits("train"); });
    const dptk::ImageDataset test_digits = dptk::on_all_or_none(group, [] { return read_digits("test"); });

    using Backend = dptk::nn::Reference<float>;
    dptk::nn::Network<Backend> net(
        dptk::nn::mlp(
            {.input = {digits.channels(), digits.height(), digits.width()}, .classes = digits.classes()}),
        /*seed=*/1);
    dptk::Trainer trainer(group, net,
                          {.epochs = epochs,
                           .batch_size = static_cast<std::size_t>(samples_per_step / group.size()),
                           .sgd = {.lr = 0.05, .momentum = 0.9},
                           .pixel_scale = 1.0 / 16});

    for (int epoch = 0; epoch < epochs; ++epoch) {
        const dptk::EpochResult result = trainer.train_epoch(digits, epoch);
        if (group.rank() != 0) continue;
        std::printf("epoch %2d/%d: loss %.6f\n", epoch + 1, epochs, result.loss);
        std::fflush(stdout);
    }
    const double accuracy = trainer.evaluate(test_digits).accuracy;
    if (group.rank() == 0) std::printf("test accuracy: %.3f\n", accuracy);
}

/// Returns whether all ranks have succeeded. Prints how each failed rank has ended.
bool all_well(const std::vector<dptk::detail::ChildEnd>& ends) {
    bool well = true;
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
        if (ends[rank].well()) continue;
        std::fprintf(stderr, "train_over_pipes: rank %zu: %s\n", rank, ends[rank].text().c_str());
        well = false;
    }
    return well;
}

}  // namespace

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
    if (argc > 2 || ranks < 1 || samples_per_step % ranks != 0) {
        std::fprintf(stderr,
                     "train_over_pipes: expected at most 1 argument, a number of ranks that divides %d\n",
                     samples_per_step);
        return 1;
    }
    try {
        const auto ends = fork_ranks(ranks, [](PipeTransport transport) {
            dptk::ProcessGroup group = PipeCommunicator(std::move(transport));
            train(group);
        });
        return all_well(ends) ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "train_over_pipes: %s\n", error.what());
        return 1;
    }
}
