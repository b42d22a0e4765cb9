#include "data.hpp"

#include <dptk/data/random_split.hpp>
#include <dptk/data/readers/cifar.hpp>
#include <dptk/data/readers/idx_images.hpp>
#include <dptk/data/readers/npy.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
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

using Images = Data<dptk::ImageDataset>;

/// A training and a test part. Braces read them in this order.
struct Parts {
    dptk::ImageDataset train;
    dptk::ImageDataset test;
};

Images data_of(Parts parts, std::string remark = "") {
    Images data{.train = std::move(parts.train), .test = std::move(parts.test)};
    data.image = {data.train.channels(), data.train.height(), data.train.width()};
    data.classes = data.train.classes();
    data.remark = std::move(remark);
    return data;
}

Images load_digits(const fs::path& dir) {
    Images data = data_of({read_split(dir, "train"), read_split(dir, "test")});
    data.pixel_scale = 1.0 / 16;
    return data;
}

std::vector<std::size_t> range(std::size_t first, std::size_t last) {
    std::vector<std::size_t> indices(last - first);
    std::iota(indices.begin(), indices.end(), first);
    return indices;
}

/// MNIST and Fashion-MNIST have the same format.
Images load_mnist(const fs::path& dir) {
    if (fs::exists(plain_or_gzip(dir, "train-images-idx3-ubyte")))
        return data_of({read_split(dir, "train"), read_split(dir, "t10k")});
    const dptk::ImageDataset all = read_split(dir, "t10k");
    const std::size_t trained = all.size() * 8 / 10;
    return data_of({all.subset(range(0, trained)), all.subset(range(trained, all.size()))},
                   "no train-images-idx3-ubyte in " + dir.string() +
                       ": training on the first 80 % of the test images, and testing on the others");
}

Images load_cifar10(const fs::path& dir) {
    std::vector<fs::path> train;
    for (int i = 1; i <= 5; ++i) train.push_back(dir / ("data_batch_" + std::to_string(i) + ".bin"));
    return data_of({dptk::read_cifar10(train), dptk::read_cifar10(std::array{dir / "test_batch.bin"})});
}

Images load_cifar100(const fs::path& dir) {
    const auto read = [&](const char* name) { return dptk::read_cifar100(std::array{dir / name}); };
    return data_of({read("train.bin"), read("test.bin")});
}

Images load_npy(const fs::path& dir) {
    const auto read = [&](const std::string& part) {
        return dptk::read_npy_images(dir / (part + "_images.npy"), dir / (part + "_labels.npy"));
    };
    Images data = data_of({read("train"), read("test")});
    if (data.test.classes() > data.train.classes())
        throw dptk::ArgumentError("test_labels.npy has labels that train_labels.npy does not have");
    return data;
}

struct NamedDataset {
    std::string_view name;
    Images (*load)(const fs::path& dir);
    std::string_view files;
};

constexpr std::array<NamedDataset, 6> datasets{{
    {"digits", load_digits, "train- and test-images-idx3-ubyte and -labels-idx1-ubyte, also with .gz"},
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

/// Whether a folder has image files in folders, as the dataset `images` has.
bool has_folders_of_images(const fs::path& dir) {
    std::error_code ignored;
    fs::recursive_directory_iterator entry(dir, fs::directory_options::follow_directory_symlink, ignored);
    for (; entry != fs::recursive_directory_iterator(); entry.increment(ignored)) {
        const std::string ending = entry->path().extension().string();
        if (entry.depth() > 0 && (ending == ".jpg" || ending == ".jpeg" || ending == ".png")) return true;
        if (entry.depth() == 2) entry.disable_recursion_pending();
    }
    return false;
}

}  // namespace

Images load_data(const Options& options) {
    if (options.dataset == "synthetic") return data_of({make_synthetic(2048, 1), make_synthetic(512, 2)});
    const fs::path dir = options.data.empty() ? fs::path() : fs::path(options.data.front());
    const NamedDataset& dataset =
        *std::find_if(datasets.begin(), datasets.end(),
                      [&](const NamedDataset& one) { return one.name == options.dataset; });
    const std::string files = "the folder of " + std::string(dataset.files);
    if (dir.empty() && dataset.name != "digits")
        throw dptk::ArgumentError("--dataset " + options.dataset + " needs --data DIR, " + files);
    try {
        return dataset.load(dir.empty() ? fs::path(DPTK_EXAMPLE_DATA_DIR) / "digits" : dir);
    } catch (const dptk::Error& error) {
        if (!dir.empty() && has_folders_of_images(dir))
            throw dptk::ArgumentError("--data: " + dir.string() +
                                      " has folders of images: add --dataset images");
        throw dptk::Error(std::string(error.what()) + "; --data must be " + files);
    }
}

#ifdef DPTK_WITH_IMAGES
namespace {

/// Returns folder/name for each of the folders.
std::vector<std::string> parts(const std::vector<std::string>& folders, const std::string& name) {
    std::vector<std::string> all;
    for (const std::string& folder : folders) all.push_back(fs::path(folder) / name);
    return all;
}

/// Whether the folders have the folders train and val. Throws ArgumentError if only some of these exist.
bool are_split(const std::vector<std::string>& folders) {
    const auto exists = [&](const char* name) {
        const std::vector<std::string> all = parts(folders, name);
        return std::count_if(all.begin(), all.end(),
                             [](const std::string& one) { return fs::is_directory(one); });
    };
    const auto found = exists("train") + exists("val");
    if (found == 0 || found == 2 * static_cast<std::ptrdiff_t>(folders.size())) return found != 0;
    throw dptk::ArgumentError("--data: expected the folders train and val in each DIR, or in none");
}

}  // namespace

Data<ImageFiles> find_images(const Options& options, int rank) {
    if (options.data.empty())
        throw dptk::ArgumentError(
            "--dataset images needs --data DIR..., folders with the folders train and val, in which each "
            "class "
            "has a folder of its own; or without these two folders, and a fifth of the images is for "
            "testing");
    const dptk::ImageFolderOptions folder_options{
        .skip_damaged = options.skip_damaged, .keep_hidden = options.keep_hidden, .rank = rank};
    const auto open = [&](const std::vector<std::string>& sources) {
        return std::make_shared<const dptk::ImageFolder>(dptk::ImageFolder::from(sources, folder_options));
    };
    const auto whole = [](const std::shared_ptr<const dptk::ImageFolder>& folder) {
        return ImageFiles(folder, range(0, folder->size()));
    };
    const std::size_t size = options.image_size;
    const dptk::ImageTransforms whole_images{dptk::Resize(size), dptk::CenterCrop(size),
                                             dptk::Normalize(dptk::imagenet)};
    const bool augments = options.augment == "crop-flip";
    const auto data_of_files = [&](const dptk::ImageFolder& folder, ImageFiles train, ImageFiles test) {
        Data<ImageFiles> data{.train = std::move(train),
                              .test = std::move(test),
                              .image = {3, size, size},
                              .classes = folder.classes(),
                              .class_names = folder.class_names(),
                              .transform = whole_images,
                              .test_transform = whole_images};
        if (augments) {
            data.transform = {dptk::RandomResizedCrop(size), dptk::RandomHorizontalFlip(),
                              dptk::Normalize(dptk::imagenet)};
            data.test_transform = {dptk::Resize(size * 8 / 7), dptk::CenterCrop(size),
                                   dptk::Normalize(dptk::imagenet)};
        }
        return data;
    };
    const bool has_test_data = !options.test_data.empty();
    if (has_test_data || are_split(options.data)) {
        const auto trained = open(has_test_data ? options.data : parts(options.data, "train"));
        const auto tested = open(has_test_data ? options.test_data : parts(options.data, "val"));
        if (trained->class_names() != tested->class_names())
            throw dptk::ArgumentError(
                (has_test_data ? "--test-data: expected the classes of --data, "
                               : "--data: expected in val the classes of train, ") +
                dptk::detail::class_difference(trained->class_names(), tested->class_names()));
        return data_of_files(*trained, whole(trained), whole(tested));
    }
    const auto all = open(options.data);
    std::vector<int> labels;
    for (const dptk::ImageFile& file : all->files()) labels.push_back(file.label);
    dptk::SplitIndices split = dptk::split_by_class(labels, 0.2, options.seed);
    return data_of_files(*all, {all, std::move(split.training)}, {all, std::move(split.validation)});
}
#endif
