#include "dptk/data/readers/idx_images.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/readers/files.hpp"

namespace {

constexpr int u8 = 0x08;
constexpr int i8 = 0x09;

std::string images_file(std::uint32_t count) {
    return idx_header(u8, {count, 2, 2}) + std::string(count * 4, 'x');
}

std::string labels_file(const std::string& labels) {
    return idx_header(u8, {static_cast<std::uint32_t>(labels.size())}) + labels;
}

std::string read_error(const std::filesystem::path& images, const std::filesystem::path& labels,
                       dptk::ImageDatasetOptions options = {}) {
    return format_error_of([&] { static_cast<void>(dptk::read_idx_images(images, labels, options)); });
}

dptk::ImageDataset shipped_digits(const std::string& split) {
    const std::filesystem::path folder = std::filesystem::path(DPTK_EXAMPLE_DATA_DIR) / "digits";
    return dptk::read_idx_images(folder / (split + "-images-idx3-ubyte.gz"),
                                 folder / (split + "-labels-idx1-ubyte.gz"));
}

std::vector<int> first_labels(const dptk::ImageDataset& dataset, std::size_t count) {
    std::vector<int> labels;
    for (std::size_t i = 0; i < count; ++i) labels.push_back(dataset[i].label);
    return labels;
}

}  // namespace

TEST_CASE("images and labels are read into one dataset") {
    const TemporaryFolder folder;
    const auto images = write_gzip(folder / "images", images_file(3));
    const auto labels = folder.write("labels", labels_file({1, 0, 4}));
    const dptk::ImageDataset dataset = dptk::read_idx_images(images, labels);
    CHECK(dataset.size() == 3);
    CHECK(dataset.channels() == 1);
    CHECK(dataset.height() == 2);
    CHECK(dataset.width() == 2);
    CHECK(dataset.classes() == 5);
    CHECK(dataset[2].label == 4);
    CHECK(std::ranges::count(dataset[2].pixels, 'x') == 4);
    CHECK(dptk::read_idx_images(images, labels, {.classes = 10}).classes() == 10);
}

TEST_CASE("images with channels are read too") {
    const TemporaryFolder folder;
    const auto images = folder.write("images", idx_header(u8, {1, 3, 2, 2}) + std::string(12, 'x'));
    CHECK(dptk::read_idx_images(images, folder.write("labels", labels_file({0}))).channels() == 3);
}

TEST_CASE("counts of images and labels that differ are refused, naming both files and both counts") {
    const TemporaryFolder folder;
    const auto images = folder.write("images", images_file(3));
    const auto labels = folder.write("labels", labels_file({1, 0}));
    const std::string message = read_error(images, labels);
    CHECK(message.find("3 in " + images.string()) != std::string::npos);
    CHECK(message.find("2 in " + labels.string()) != std::string::npos);
}

TEST_CASE("images and labels of the wrong type or shape are refused, naming the file and the byte") {
    const TemporaryFolder folder;
    const auto images = folder.write("images", images_file(1));
    const auto labels = folder.write("labels", labels_file({1}));
    const auto signed_images = folder.write("signed images", idx_header(i8, {1, 1, 1}) + "x");
    const auto signed_labels = folder.write("signed labels", idx_header(i8, {1}) + "x");

    CHECK(read_error(signed_images, labels) ==
          signed_images.string() + ": byte 2: expected images of type u8, found i8");
    CHECK(read_error(images, signed_labels) ==
          signed_labels.string() + ": byte 2: expected labels of type u8, found i8");
    CHECK(read_error(labels, images) ==
          labels.string() +
              ": byte 3: expected 3 or 4 as the number of dimensions of images, found shape [1]");
    CHECK(read_error(images, images) ==
          images.string() +
              ": byte 3: expected 1 as the number of dimensions of labels, found shape [1, 2, 2]");
}

TEST_CASE("a label beyond the given number of classes is refused, naming the file, the byte and the label") {
    const TemporaryFolder folder;
    const auto images = folder.write("images", images_file(3));
    const auto labels = folder.write("labels", labels_file({1, 0, 4}));
    CHECK(read_error(images, labels, {.classes = 4}) ==
          labels.string() + ": byte 10: expected a label below 4, found 4");
}

TEST_CASE("the digits that are shipped are complete") {
    const dptk::ImageDataset train = shipped_digits("train");
    CHECK(train.size() == 1437);
    CHECK(train.height() == 8);
    CHECK(train.width() == 8);
    CHECK(train.classes() == 10);
    CHECK(first_labels(train, 10) == std::vector<int>{1, 2, 3, 4, 6, 7, 8, 9, 1, 2});

    const dptk::ImageDataset test = shipped_digits("test");
    CHECK(test.size() == 360);
    CHECK(test.classes() == 10);
    CHECK(first_labels(test, 10) == std::vector<int>{0, 5, 0, 5, 0, 5, 0, 5, 8, 3});

    const std::array<std::uint8_t, 8> first_row_of_the_first_zero = {0, 0, 5, 13, 9, 1, 0, 0};
    CHECK(std::ranges::equal(test[0].pixels.first(8), first_row_of_the_first_zero));
    for (std::size_t i = 0; i < train.size(); ++i) {
        CHECK(std::ranges::all_of(train[i].pixels, [](std::uint8_t pixel) { return pixel <= 16; }));
    }
}
