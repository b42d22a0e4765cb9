// Mixed precision: values in f32, gradients in bf16, which halves the bytes that ranks exchange. Trains a
// linear classifier of digits in both ways, and compares the losses.
//   mpirun -np 2 mixed_precision examples/data/digits/train-
#include <dptk/ddp.hpp>
#include <dptk/optim/sgd.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "../adoption/digits.hpp"

// Returns the mean loss over all epochs, samples and ranks.
template <class Gradient>
double train(dptk::ProcessGroup& group, const Digits& digits) {
    constexpr std::size_t pixels = Digits::pixels_per_image, classes = 10;
    std::vector<float> weight(classes * pixels), sums(classes * pixels);
    std::vector<Gradient> gradient(classes * pixels);
    dptk::DistributedDataParallel ddp(group, weight, gradient, {.verify_parameters_every = 1});  // or throws
    dptk::SGD<float> sgd({.lr = 0.5, .momentum = 0.9});
    dptk::DistributedSampler sampler(digits, group, {.padding = dptk::Padding::none});
    std::array<double, 2> loss{};  // the sum in all epochs, and the number of samples
    for (int epoch = 0; epoch < 5; ++epoch) {
        sampler.set_epoch(epoch);
        for (const std::span<const std::size_t> batch : dptk::BatchSampler(sampler, 32)) {
            sums.assign(sums.size(), 0.0F);
            for (const std::size_t sample : batch) {
                const float* image = digits.image(sample);
                float all = 0, probability[classes] = {};
                for (std::size_t c = 0; c < classes; ++c) {
                    for (std::size_t p = 0; p < pixels; ++p)
                        probability[c] += weight[c * pixels + p] * image[p];
                    all += probability[c] = std::exp(probability[c]);
                }
                const auto label = static_cast<std::size_t>(digits.labels[sample]);
                loss[0] -= std::log(probability[label] / all);
                for (std::size_t c = 0; c < classes; ++c) {
                    const float error = (probability[c] / all - (c == label ? 1.0F : 0.0F)) /
                                        static_cast<float>(batch.size());
                    for (std::size_t p = 0; p < pixels; ++p) sums[c * pixels + p] += error * image[p];
                }
            }
            for (std::size_t i = 0; i < sums.size(); ++i) gradient[i] = Gradient(sums[i]);
            loss[1] += static_cast<double>(batch.size());
            ddp.synchronize(batch.size());  // averages in the gradient's type
            sgd.step(ddp.parameters());     // steps f32 values
        }
    }
    group.all_reduce(loss);
    return loss[0] / loss[1];
}

int main(int, char** argv) {
    dptk::ProcessGroup group = dptk::init_process_group();
    const Digits digits = read_digits(argv[1]);
    const double f32 = train<float>(group, digits), bf16 = train<dptk::bfloat16>(group, digits);
    const char* const how = std::abs(f32 - bf16) < 0.01 * f32 ? "within 1 %" : "too far apart";
    if (group.rank() == 0)
        std::printf("loss with f32 gradients %.4f, bf16 gradients %.4f: %s\n", f32, bf16, how);
}
