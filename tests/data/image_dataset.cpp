#include <dptk/core/error.hpp>

#include "dptk/data/image_dataset.hpp"

#include <doctest/doctest.h>
#include <dptk/comm/serializer.hpp>
#include <dptk/data/fingerprint.hpp>
#include <dptk/data/image.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/data/dataset.hpp"

namespace {

using dptk::ImageDataset;
using dptk::ImageDatasetOptions;
using Bytes = std::vector<std::uint8_t>;
using Shape = std::vector<std::size_t>;

static_assert(dptk::IndexableDataset<ImageDataset>);
static_assert(!std::is_copy_constructible_v<ImageDataset>, "copying a dataset must be visible: subset()");

/// Pixels 0, 1, 2, ... in images of 2x3.
ImageDataset small_dataset(Bytes labels, ImageDatasetOptions options = {}) {
    Bytes pixels(labels.size() * 6);
    std::iota(pixels.begin(), pixels.end(), std::uint8_t{0});
    const Shape shape = {labels.size(), 2, 3};
    return ImageDataset(pixels, shape, labels, options);
}

Bytes pixels_of(const ImageDataset& dataset, std::size_t index) {
    const dptk::LabeledImageRef image = dataset[index];
    return Bytes(image.pixels.begin(), image.pixels.end());
}

}  // namespace

TEST_CASE("an image dataset returns each image with its label") {
    const ImageDataset dataset = small_dataset({7, 2});
    CHECK(dataset.size() == 2);
    CHECK(pixels_of(dataset, 0) == Bytes{0, 1, 2, 3, 4, 5});
    CHECK(pixels_of(dataset, 1) == Bytes{6, 7, 8, 9, 10, 11});
    CHECK(dataset[0].label == 7);
    CHECK(dataset[1].label == 2);
}

TEST_CASE("images of shape [n, height, width] have one channel; other shapes contain the number") {
    const ImageDataset gray = small_dataset({0});
    CHECK(gray.channels() == 1);
    CHECK(gray.height() == 2);
    CHECK(gray.width() == 3);

    const ImageDataset colored(Bytes(2 * 3 * 4 * 5), Shape{2, 3, 4, 5}, Bytes(2));
    CHECK(colored.channels() == 3);
    CHECK(colored.height() == 4);
    CHECK(colored.width() == 5);
    CHECK(colored[1].pixels.size() == 60);
}

TEST_CASE("the number of classes is the largest label + 1 unless it is given") {
    CHECK(small_dataset({7, 2}).classes() == 8);
    CHECK(small_dataset({255}).classes() == 256);
    CHECK(small_dataset({7, 2}, {.classes = 10}).classes() == 10);
    CHECK(small_dataset({}).classes() == 0);
}

TEST_CASE("a label beyond the given number of classes is refused") {
    CHECK_THROWS_WITH_AS(small_dataset({2, 7}, {.classes = 7}),
                         doctest::Contains("labels below 7, found 7 for image 1"), dptk::ArgumentError);
}

TEST_CASE("counts that do not agree are refused") {
    CHECK_THROWS_WITH_AS(ImageDataset(Bytes(12), Shape{2, 2, 3}, Bytes(3)),
                         doctest::Contains("2 images and 3 labels"), dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(ImageDataset(Bytes(11), Shape{2, 2, 3}, Bytes(2)),
                         doctest::Contains("12 pixels for images of shape [2, 2, 3], found 11"),
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(ImageDataset(Bytes(6), Shape{2, 3}, Bytes(2)), doctest::Contains("found [2, 3]"),
                         dptk::ArgumentError);
}

TEST_CASE("a subset has the images asked for, in that order, and all the classes") {
    const ImageDataset dataset = small_dataset({9, 1, 2});
    const Shape indices = {2, 0, 2};
    const ImageDataset subset = dataset.subset(indices);
    CHECK(subset.size() == 3);
    CHECK(subset[0].label == 2);
    CHECK(subset[1].label == 9);
    CHECK(pixels_of(subset, 0) == pixels_of(dataset, 2));
    CHECK(pixels_of(subset, 1) == pixels_of(dataset, 0));
    CHECK(pixels_of(subset, 2) == pixels_of(dataset, 2));

    const Shape without_the_nine = {1};
    CHECK(dataset.subset(without_the_nine).classes() == 10);
    CHECK(dataset.subset({}).size() == 0);
}

TEST_CASE("a subset with an index out of range is refused") {
    const Shape indices = {0, 3};
    CHECK_THROWS_WITH_AS(static_cast<void>(small_dataset({9, 1, 2}).subset(indices)),
                         doctest::Contains("below 3 for a subset, found 3"), dptk::ArgumentError);
}

TEST_CASE("all pixels and labels are contiguous, and an id distinguishes datasets") {
    ImageDataset dataset = small_dataset({9, 1, 2});
    CHECK(dataset.pixels().size() == 18);
    CHECK(dataset.pixels().data() == dataset[0].pixels.data());
    CHECK(std::ranges::equal(dataset.labels(), Bytes{9, 1, 2}));
    const std::uint64_t id = dataset.id();
    CHECK(small_dataset({9, 1, 2}).id() != id);
    const ImageDataset moved = std::move(dataset);
    CHECK(moved.id() == id);
}

TEST_CASE("the fingerprint of images depends on their pixels and labels") {
    const std::vector<std::size_t> shape{2, 1, 2};
    const auto fingerprint = [&](const std::vector<std::uint8_t>& pixels,
                                 const std::vector<std::uint8_t>& labels) {
        return dptk::dataset_fingerprint(dptk::ImageDataset(pixels, shape, labels));
    };
    CHECK(fingerprint({1, 2, 3, 4}, {0, 1}) == fingerprint({1, 2, 3, 4}, {0, 1}));
    CHECK(fingerprint({1, 2, 3, 4}, {0, 1}) != fingerprint({1, 2, 3, 5}, {0, 1}));
    CHECK(fingerprint({1, 2, 3, 4}, {0, 1}) != fingerprint({1, 2, 3, 4}, {0, 2}));
    const auto of_one = [](const dptk::Image& image) {
        return dptk::dataset_fingerprint(std::vector{std::pair(image, 3)});
    };
    CHECK(of_one({1, 2, 1, {1, 2}}) == of_one({1, 2, 1, {1, 2}}));
    CHECK(of_one({1, 2, 1, {1, 2}}) != of_one({1, 2, 1, {1, 3}}));
}

// Its pixels are a view, which would arrive as a pointer into the memory of another process.
static_assert(!dptk::Serializable<dptk::LabeledImageRef>);
