// Trains a convolutional network on the digits that ship with dptk, removes half of its filters, fine-tunes
// it, and then makes a network that is really smaller:
//   mpirun -np 2 pruning examples/data/digits/
#include <dptk/data/readers/idx_images.hpp>
#include <dptk/train.hpp>
#include <dptk/train/callbacks/prune_filters.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

namespace nn = dptk::nn;

#ifdef DPTK_WITH_ONEDNN
using Backend = nn::Cpu;
#else
using Backend = nn::Reference<float>;
#endif

constexpr int epochs = 8;
constexpr int first_pruned_epoch = 5;  // the epochs before it train all filters
constexpr double pixel_scale = 1.0 / 16;

dptk::ImageDataset read(const std::string& prefix) {
    return dptk::read_idx_images(prefix + "-images-idx3-ubyte.gz", prefix + "-labels-idx1-ubyte.gz",
                                 {.classes = 10});
}

/// Prints the accuracy after each epoch.
class PrintAccuracy : public dptk::Callback {
  public:
    void epoch_end(dptk::TrainingRun& run) override {
        const dptk::TrainingStatus& status = run.status();
        if (run.group().rank() != 0) return;
        std::printf("epoch %d%s: accuracy %.3f\n", status.epoch + 1,
                    status.epoch < first_pruned_epoch ? "" : ", with masks", status.test.accuracy);
    }
};

/// Returns the images as the input of a network.
dptk::Tensor<float> to_input(const dptk::ImageDataset& images) {
    dptk::Tensor<float> input({images.size(), images.channels(), images.height(), images.width()});
    std::transform(images.pixels().begin(), images.pixels().end(), input.data(),
                   [](unsigned char pixel) { return static_cast<float>(pixel * pixel_scale); });
    return input;
}

/// Returns the largest difference of two networks' outputs.
double largest_difference(nn::Network<Backend>& a, nn::Network<Backend>& b,
                          const dptk::Tensor<float>& input) {
    a.set_mode(nn::Mode::evaluate);
    b.set_mode(nn::Mode::evaluate);
    const auto first = a.forward(input).values(), second = b.forward(input).values();
    double largest = 0;
    for (std::size_t i = 0; i < first.size(); ++i)
        largest = std::max(largest, std::abs(static_cast<double>(first[i]) - second[i]));
    return largest;
}

int main(int, char** arguments) {
    dptk::ProcessGroup group = dptk::init_process_group();
    const std::string folder = arguments[1];
    const dptk::ImageDataset training = read(folder + "train"), test = read(folder + "test");
    const dptk::TrainerOptions options{.epochs = epochs,
                                       .batch_size = 16,
                                       .sgd = {.lr = 0.02, .momentum = 0.9, .weight_decay = 5e-4},
                                       .pixel_scale = pixel_scale};

    // 1. Training; from an epoch on, with masks: half of the filters are kept at 0.
    nn::Network<Backend> net(nn::make_model("convnet_mnist", {.input = {1, 8, 8}, .classes = 10}), 1);
    dptk::Trainer trainer(group, net, options);
    trainer.add(dptk::LearningRate(dptk::CosineSchedule({.total = epochs, .final_factor = 0.1})));
    const auto& pruning = trainer.add(
        dptk::PruneFilters(net, {.score = nn::FilterScore::l1, .ratio = 0.5}, first_pruned_epoch));
    trainer.add(PrintAccuracy());
    trainer.fit(training, test);

    // 2. A network without these filters, and without all that belongs to them. All ranks have the same plan.
    const nn::PruningPlan& plan = *pruning.plan();
    nn::Network<Backend> smaller(nn::prune(net.graph(), plan), 1);
    nn::copy_pruned_values(net, smaller, plan);
    const double difference = largest_difference(net, smaller, to_input(test));

    // 3. It is a network like any other: it can be trained on, written, and pruned again.
    dptk::Trainer trainer_of_smaller(group, smaller, options);
    const double accuracy = trainer_of_smaller.evaluate(test).accuracy;
    if (group.rank() != 0) return 0;
    std::fputs(nn::pruning_report(net.graph(), plan).c_str(), stdout);
    std::printf("outputs differ by at most %.0e\n", difference);
    std::printf("smaller network: accuracy %.3f\n", accuracy);
}
