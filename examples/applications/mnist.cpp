// The classic first program: trains a convolutional network on handwritten digits, with one replica per rank.
//   mpirun -np 2 mnist                    the digits of 8 x 8 pixels that are part of dptk
//   mpirun -np 2 mnist FOLDER             MNIST's four IDX files, plain or .gz
//   mpirun -np 2 mnist FOLDER RUN_FOLDER  writes checkpoints, and continues from the newest one
#include <dptk/data/readers/idx_images.hpp>
#include <dptk/train.hpp>
#include <dptk/train/checkpoint/checkpoint.hpp>

#include <cstdio>
#include <filesystem>
#include <string>

namespace fs = std::filesystem;

#ifdef DPTK_WITH_ONEDNN
using Backend = dptk::nn::Cpu;
#else
using Backend = dptk::nn::Reference<float>;
#endif

dptk::ImageDataset read(const fs::path& folder, const std::string& part) {
    const auto file = [&](const std::string& name) {
        const fs::path plain = folder / (part + name);
        return fs::exists(plain) ? plain : fs::path(plain.string() + ".gz");
    };
    return dptk::read_idx_images(file("-images-idx3-ubyte"), file("-labels-idx1-ubyte"), {.classes = 10});
}

void train(dptk::ProcessGroup& group, int argc, char** argv) {
    const bool is_mnist = argc > 1;
    const fs::path folder = is_mnist ? argv[1] : DPTK_EXAMPLE_DATA_DIR "/digits";
    const auto training = dptk::on_all_or_none(group, [&] { return read(folder, "train"); });
    const auto test = dptk::on_all_or_none(group, [&] { return read(folder, is_mnist ? "t10k" : "test"); });

    const dptk::Shape image = {1, training.height(), training.width()};
    dptk::nn::Network<Backend> net(dptk::nn::convnet_mnist({.input = image, .classes = 10}), /*seed=*/1);
    constexpr int epochs = 6;
    dptk::Trainer trainer(group, net,
                          {.epochs = epochs,
                           .optimizer = dptk::OptimizerKind::adam,
                           .adam = {.lr = 0.002},
                           .pixel_scale = is_mnist ? 1.0 / 255 : 1.0 / 16});
    trainer.add(dptk::LearningRate(dptk::CosineSchedule({.total = epochs, .warmup = 0.5})));
    if (argc > 2) trainer.add(dptk::Checkpoint(argv[2]));
    trainer.add(dptk::ProgressBar(dptk::ProgressStyle::lines));

    const dptk::TrainingStatus status = trainer.fit(training, test);
    if (group.rank() == 0)
        std::printf("%.2f %% of %zu test images are recognized\n", 100 * status.test.accuracy, test.size());
}

int main(int argc, char** argv) {
    int rank = 0;
    try {
        dptk::ProcessGroup group = dptk::init_process_group();
        rank = group.rank();
        train(group, argc, argv);
        return 0;
    } catch (const dptk::Error& error) {  // agreed(): all ranks have the same error
        if (!error.agreed() || rank == 0) std::fprintf(stderr, "mnist: %s\n", error.what());
        return 1;
    }
}
