// Trains ResNet-18 on a folder of JPEG files that has a folder for each class: from files to gradients.
// Prints the samples per second of all ranks, the median over the epochs after the first one.
// bench/image_training.py runs it beside PyTorch, and measures the memory of both.
//   mpirun -np 2 image_training FOLDER SIZE BATCH WORKERS EPOCHS
// SIZE is the width and height of the images that the network gets; with `default` as WORKERS, each rank has
// as many workers as a DataLoader starts by itself.
#include <dptk/comm/init.hpp>
#include <dptk/data/images/image_folder.hpp>
#include <dptk/train.hpp>

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "measure.hpp"
#include "training.hpp"

int main(int argc, char** argv) {
    if (argc != 6) return 2;
    dptk::ProcessGroup group = dptk::init_process_group();
#ifdef DPTK_WITH_ONEDNN
    dptk::nn::cpu::set_num_threads(1);
#endif
    const dptk::ImageFolder images(argv[1]);
    const std::size_t size = std::stoul(argv[2]);
    dptk::TrainerOptions options{.batch_size = std::stoul(argv[3]), .sgd = {.lr = 0.01, .momentum = 0.9}};
    options.transform = {dptk::RandomResizedCrop(size), dptk::RandomHorizontalFlip(),
                         dptk::Normalize(dptk::imagenet)};
    if (argv[4] != std::string_view("default")) options.workers = std::stoul(argv[4]);
    dptk::nn::Network<bench::Backend> net(
        dptk::nn::make_model("resnet18", {.input = {3, size, size}, .classes = images.classes()}), 1);
    dptk::Trainer trainer(group, net, options);
    std::vector<double> rates;
    for (int epoch = 0; epoch < std::stoi(argv[5]); ++epoch) {
        const double time = bench::microseconds([&] { trainer.train_epoch(images, epoch); });
        if (epoch > 0) rates.push_back(1e6 * static_cast<double>(images.size()) / time);
    }
    if (group.rank() == 0) std::printf("%.1f samples/s\n", bench::median(rates));
}
