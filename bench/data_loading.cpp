// Measures the DataLoader: samples in memory, beside a loop without a loader; the first batch of a large
// dataset; and a folder of images. bench/data_loading.py runs it beside PyTorch's DataLoader.
//   data_loading memory WORKERS | loop | first | images WORKERS FOLDER
#include <dptk/data/data_loader.hpp>
#include <dptk/data/dataset_views.hpp>

#ifdef DPTK_WITH_IMAGES
#include <dptk/data/images/image_folder.hpp>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure.hpp"

namespace {

/// Images of 28 x 28 numbers, with labels.
struct Memory {
    static constexpr std::size_t samples = 60000;
    static constexpr std::size_t pixels = 784;
    std::vector<float> images = std::vector<float>(samples * pixels, 0.5F);
    std::vector<std::int64_t> labels = std::vector<std::int64_t>(samples, 3);
    dptk::TensorDataset<float, std::int64_t> dataset{samples, images, labels};
};

/// Returns the samples of each second in a pass, the median of several.
template <class Pass>
double rate(std::size_t samples, dptk::DistributedSampler& sampler, Pass&& pass, int passes = 5) {
    std::vector<double> rates;
    for (int epoch = 0; epoch < passes; ++epoch) {
        sampler.set_epoch(epoch);
        rates.push_back(1e6 * static_cast<double>(samples) / bench::microseconds(pass));
    }
    return bench::median(rates);
}

void measure_memory(std::size_t workers) {
    const Memory memory;
    dptk::DistributedSampler sampler(memory.samples, 1, 0);
    dptk::DataLoader loader(memory.dataset, sampler, {.batch_size = 64, .workers = workers});
    double sum = 0;
    const double found = rate(memory.samples, sampler, [&] {
        for (const auto& [images, labels] : loader) sum += images[0];
    });
    std::printf("%.0f samples/s (%.0f)\n", found, sum);
}

/// Compares a loader without workers with a loop that a program would write without it.
void compare_with_loop() {
    const Memory memory;
    dptk::DistributedSampler sampler(memory.samples, 1, 0);
    dptk::DataLoader loader(memory.dataset, sampler, {.batch_size = 64, .workers = 0});
    dptk::Tensor<float> images({64, memory.pixels});
    std::vector<std::int64_t> labels(64);
    double sum = 0;
    std::vector<double> ratios;
    std::vector<double> rates;
    const auto with_loader = [&] {
        for (const auto& [own_images, own_labels] : loader) sum += own_images[0];
    };
    const auto by_hand = [&] {
        for (const auto batch : dptk::BatchSampler(sampler, 64)) {
            for (std::size_t i = 0; i < batch.size(); ++i) {
                const auto [pixels, label] = memory.dataset[batch[i]];
                std::copy(pixels.begin(), pixels.end(), images.data() + i * memory.pixels);
                labels[i] = label[0];
            }
            sum += images[0];
        }
    };
    for (int round = 0; round < 40; ++round) {
        const bool loader_is_first = round % 2 == 0;
        double own = loader_is_first ? rate(memory.samples, sampler, with_loader, 1) : 0;
        const double peer = rate(memory.samples, sampler, by_hand, 1);
        if (!loader_is_first) own = rate(memory.samples, sampler, with_loader, 1);
        ratios.push_back(peer / own);
        rates.push_back(own);
    }
    std::printf("0 workers: %.0f samples/s | loop by hand: ratio of the times %.3f (%.0f)\n",
                bench::median(rates), bench::median(ratios), sum);
}

void measure_first_batch() {
    constexpr std::size_t records = 1'000'000;
    const std::vector<float> values(records * 8, 1.0F);
    const dptk::TensorDataset<float> dataset(records, values);
    for (const dptk::Order order : {dptk::Order::torch, dptk::Order::computed}) {
        float sum = 0;
        const double time = bench::microseconds([&] {
            dptk::DistributedSampler sampler(records, 1, 0, {.order = order});
            dptk::DataLoader loader(dataset, sampler, {.batch_size = 64});
            for (const auto& [batch] : loader) {
                sum += batch[0];
                break;
            }
        });
        std::printf("first batch of %zu records, order %s: %.4f s (%.0f)\n", records,
                    order == dptk::Order::torch ? "torch" : "computed", time / 1e6, static_cast<double>(sum));
    }
}

#ifdef DPTK_WITH_IMAGES
void measure_images(std::size_t workers, const std::string& folder) {
    const dptk::ImageFolder images(folder);
    dptk::DistributedSampler sampler(images.size(), 1, 0);
    dptk::DataLoader loader(images, sampler,
                            {.batch_size = 32,
                             .workers = workers,
                             .transform = {dptk::RandomResizedCrop(224), dptk::RandomHorizontalFlip(),
                                           dptk::Normalize(dptk::imagenet)}});
    double sum = 0;
    const double found = rate(
        images.size(), sampler,
        [&] {
            for (const auto& [pixels, labels] : loader) sum += pixels[0];
        },
        3);
    std::printf("%.0f samples/s (%.0f)\n", found, sum);
}
#endif

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argc > 1 ? argv[1] : "";
    if (what == "memory" && argc == 3) {
        measure_memory(std::stoul(argv[2]));
    } else if (what == "loop") {
        compare_with_loop();
    } else if (what == "first") {
        measure_first_batch();
#ifdef DPTK_WITH_IMAGES
    } else if (what == "images" && argc == 4) {
        measure_images(std::stoul(argv[2]), argv[3]);
#endif
    } else {
        std::fputs("data_loading memory WORKERS | loop | first | images WORKERS FOLDER\n", stderr);
        return 2;
    }
}
