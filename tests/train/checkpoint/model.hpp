// The training run that the tests of checkpoints interrupt: convolution, batch norm and dropout on the
// digits.
#pragma once

#include <dptk/data/readers/idx_images.hpp>
#include <dptk/train.hpp>
#include <dptk/train/callbacks/average_weights.hpp>
#include <dptk/train/callbacks/learning_rate.hpp>

#include <cstdint>
#include <string>

namespace test {

using Backend = dptk::nn::Reference<float>;

inline dptk::ImageDataset digits(const std::string& split) {
    const std::string prefix = DPTK_EXAMPLE_DATA_DIR "/digits/" + split;
    return dptk::read_idx_images(prefix + "-images-idx3-ubyte.gz", prefix + "-labels-idx1-ubyte.gz",
                                 {.classes = 10});
}

inline dptk::nn::Network<Backend> small_convnet() {
    using namespace dptk::nn;
    return {sequential({1, 8, 8}, {Conv2d{.out_channels = 4, .stride = 2, .padding = 1}, BatchNorm2d{},
                                   ReLU{}, Flatten{}, Dropout{.p = 0.2}, Linear{10}}),
            1};
}

inline dptk::TrainerOptions small_options(int epochs) {
    return {.epochs = epochs,
            .batch_size = 16,
            .sgd = {.lr = 0.05, .momentum = 0.9},
            .seed = 3,
            .pixel_scale = 1.0 / 16,
            .workers = 1};
}

/// Adds a schedule and averages, whose state checkpoints contain.
inline void add_callbacks(dptk::Trainer<dptk::nn::Network<Backend>>& trainer, int epochs) {
    trainer.add(dptk::LearningRate(
        dptk::CosineSchedule({.total = static_cast<double>(epochs), .final_factor = 0.1, .warmup = 0.5})));
    trainer.add(dptk::AverageWeights<>({.decay = 0.9}));
}

}  // namespace test
