#include "data.hpp"

#include <dptk/data/readers/cifar.hpp>
#include <dptk/data/readers/idx_images.hpp>
#include <dptk/data/readers/npy.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
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

/// MNIST and Fashion-MNIST have the same format.
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

Data load_cifar10(const fs::path& dir) {
    std::vector<fs::path> train;
    for (int i = 1; i <= 5; ++i) train.push_back(dir / ("data_batch_" + std::to_string(i) + ".bin"));
    return {dptk::read_cifar10(train), dptk::read_cifar10(std::array{dir / "test_batch.bin"}), 1.0 / 255, ""};
}

Data load_cifar100(const fs::path& dir) {
    const auto read = [&](const char* name) { return dptk::read_cifar100(std::array{dir / name}); };
    return {read("train.bin"), read("test.bin"), 1.0 / 255, ""};
}

Data load_npy(const fs::path& dir) {
    const auto read = [&](const std::string& part) {
        return dptk::read_npy_images(dir / (part + "_images.npy"), dir / (part + "_labels.npy"));
    };
    Data data{read("train"), read("test"), 1.0 / 255, ""};
    if (data.test.classes() > data.train.classes())
        throw dptk::ArgumentError("test_labels.npy has labels that train_labels.npy does not have");
    return data;
}

struct NamedDataset {
    std::string_view name;
    Data (*load)(const fs::path& dir);
    std::string_view files;
};

constexpr std::array<NamedDataset, 5> datasets{{
    {"mnist", load_mnist, "train- and t10k-images-idx3-ubyte and -labels-idx1-ubyte, also with .gz"},
    {"fashion-mnist", load_mnist, "train- and t10k-images-idx3-ubyte and -labels-idx1-ubyte, also with .gz"},
    {"cifar10", load_cifar10,
     "data_batch_1.bin to data_batch_5.bin and test_batch.bin, of the binary version"},
    {"cifar100", load_cifar100, "train.bin and test.bin, of the binary version"},
    {"npy", load_npy, "train_images.npy, train_labels.npy, test_images.npy and test_labels.npy"},
}};

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
    const auto* const dataset = std::find_if(datasets.begin(), datasets.end(), [&](const NamedDataset& one) {
        return one.name == options.dataset;
    });
    const std::string files = "the folder of " + std::string(dataset->files);
    if (options.data.empty())
        throw dptk::ArgumentError("--dataset " + options.dataset + " needs --data DIR, " + files);
    try {
        return dataset->load(options.data);
    } catch (const dptk::FormatError& error) {
        throw dptk::FormatError(std::string(error.what()) + "; --data must be " + files);
    }
}
