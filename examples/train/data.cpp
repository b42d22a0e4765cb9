#include "data.hpp"

#include <dptk/data/readers/idx_images.hpp>

#include <array>
#include <filesystem>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

constexpr std::size_t classes = 10;

/// Returns dir/name, or dir/name.gz if only that exists.
fs::path plain_or_gzip(const fs::path& dir, const std::string& name) {
    fs::path gzip = dir / (name + ".gz");
    return !fs::exists(dir / name) && fs::exists(gzip) ? gzip : dir / name;
}

dptk::ImageDataset read_split(const fs::path& dir, const std::string& prefix) {
    return dptk::read_idx_images(plain_or_gzip(dir, prefix + "-images-idx3-ubyte"),
                                 plain_or_gzip(dir, prefix + "-labels-idx1-ubyte"), {.classes = classes});
}

Data load_digits(const fs::path& dir) {
    return {read_split(dir, "train"), read_split(dir, "test"), 1.0 / 16, ""};
}

std::vector<std::size_t> range(std::size_t first, std::size_t last) {
    std::vector<std::size_t> indices(last - first);
    std::iota(indices.begin(), indices.end(), first);
    return indices;
}

Data load_mnist(const fs::path& dir) {
    constexpr double scale = 1.0 / 255;
    if (fs::exists(plain_or_gzip(dir, "train-images-idx3-ubyte"))) {
        return {read_split(dir, "train"), read_split(dir, "t10k"), scale, ""};
    }
    const dptk::ImageDataset all = read_split(dir, "t10k");
    const std::size_t trained = all.size() * 8 / 10;
    return {all.subset(range(0, trained)), all.subset(range(trained, all.size())), scale,
            "no train-images-idx3-ubyte in " + dir.string() +
                ": training on the first 80 % of the test images, and testing on the others"};
}

/// Generates images of one pattern per class, with noise, so that a network can learn the classes.
dptk::ImageDataset make_synthetic(std::size_t count, unsigned seed) {
    constexpr std::array<std::size_t, 3> image = {3, 32, 32};
    constexpr std::size_t pixels_per_image = image[0] * image[1] * image[2];
    std::mt19937 random(seed);
    std::vector<std::uint8_t> pixels(count * pixels_per_image);
    std::vector<std::uint8_t> labels(count);
    for (std::size_t i = 0; i < count; ++i) {
        labels[i] = static_cast<std::uint8_t>(i % classes);
        for (std::size_t p = 0; p < pixels_per_image; ++p) {
            const bool bright = (p / 16 + p % 32 * labels[i]) % 7 == 0;
            pixels[i * pixels_per_image + p] = static_cast<std::uint8_t>(random() % 128 + (bright ? 96 : 0));
        }
    }
    return {std::move(pixels),
            std::array{count, image[0], image[1], image[2]},
            std::move(labels),
            {.classes = classes}};
}

}  // namespace

Data load_data(const Options& options) {
    if (options.dataset == "synthetic")
        return {make_synthetic(2048, 1), make_synthetic(512, 2), 1.0 / 255, ""};
    if (options.dataset == "digits") {
        return load_digits(options.data.empty() ? fs::path(DPTK_EXAMPLE_DATA_DIR) / "digits"
                                                : fs::path(options.data));
    }
    if (options.data.empty())
        throw dptk::ArgumentError("--dataset mnist needs --data DIR, the folder of its files");
    return load_mnist(options.data);
}
