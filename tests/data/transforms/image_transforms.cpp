#include "dptk/data/transforms/image_transforms.hpp"

#include <doctest/doctest.h>
#include <dptk/core/error.hpp>
#include <dptk/data/transforms/resample.hpp>

#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data/transforms/pictures.hpp"

namespace {

using dptk::Image;
using dptk::SampleRandom;

Image apply(const dptk::ImageTransforms& transforms, const Image& image, std::size_t index = 0) {
    return transforms(image, SampleRandom(7, 0, index));
}

std::vector<float> values_of(const Image& image, const dptk::ChannelStatistics& statistics) {
    std::vector<float> values(image.pixels.size());
    dptk::Normalize(statistics).write(image, values.data());
    return values;
}

}  // namespace

TEST_CASE("transforms with given parameters return what torchvision's return, bit for bit") {
    std::ifstream recorded(DPTK_TEST_SOURCE_DIR "/data/transforms/transforms_torchvision.txt");
    std::size_t width = 0, height = 0, a = 0, b = 0, c = 0, d = 0, e = 0;
    std::string name;
    std::map<std::string, int> lines;
    while (recorded >> width >> height >> name) {
        CAPTURE(name);
        CAPTURE(width);
        CAPTURE(height);
        const Image image = test::picture(width, height);
        std::uint64_t found = 0, hash = 0;
        const auto take = [&](const Image& out) { found = test::hash_of_elements<std::uint8_t>(out.pixels); };
        const auto take_values = [&](const dptk::ChannelStatistics& statistics) {
            found = test::hash_of_elements<float>(values_of(image, statistics));
        };
        if (name == "resize") {
            recorded >> a;
            take(dptk::Resize(a)(image));
        } else if (name == "center_crop") {
            recorded >> a >> b;
            take(dptk::CenterCrop(a, b)(image));
        } else if (name == "resized_crop") {
            recorded >> a >> b >> c >> d >> e;
            take(dptk::resample(crop(image, {.left = b, .top = a, .width = d, .height = c}), e, e));
        } else if (name == "flip") {
            take(flip_horizontally(image));
        } else if (name == "pad") {
            recorded >> a;
            take(pad(image, a));
        } else if (name == "to_tensor") {
            take_values({{0, 0, 0}, {1, 1, 1}});
        } else {
            take_values(dptk::imagenet);
        }
        recorded >> hash;
        CHECK(found == hash);
        ++lines[name];
    }
    CHECK(lines.size() == 7);
    for (const auto& [transform, count] : lines) CHECK(count == 30);
}

TEST_CASE("a random resized crop selects parts within its limits, and all of them have the size") {
    const dptk::RandomResizedCrop crop(16, 24, {.smallest_scale = 0.2, .largest_scale = 0.7});
    double smallest = 1, largest = 0, sum = 0;
    for (std::size_t i = 0; i < 2000; ++i) {
        SampleRandom random(1, 0, i);
        const auto part = crop.window(200, 100, random);
        CHECK(part.left + part.width <= 200);
        CHECK(part.top + part.height <= 100);
        const double area = static_cast<double>(part.width * part.height) / 20'000;
        const double ratio = static_cast<double>(part.width) / static_cast<double>(part.height);
        smallest = std::min(smallest, area);
        largest = std::max(largest, area);
        sum += area;
        CHECK(ratio > 0.7);
        CHECK(ratio < 1.4);
    }
    CHECK(smallest > 0.19);
    CHECK(smallest < 0.21);
    CHECK(largest > 0.6);
    CHECK(largest < 0.71);
    CHECK(sum / 2000 >
          0.35);  // the parts that are too high for the image are dropped: the mean is below 0.45
    CHECK(sum / 2000 < 0.45);
    const Image out = apply({crop}, test::picture(50, 40));
    CHECK(out.width == 24);
    CHECK(out.height == 16);
}

TEST_CASE("if no part fits, a random resized crop keeps the middle, with the nearest ratio") {
    SampleRandom random(1, 0, 0);
    const auto wide = dptk::RandomResizedCrop(8, {.smallest_scale = 1}).window(100, 10, random);
    CHECK(wide.width == 13);
    CHECK(wide.height == 10);
    CHECK(wide.left == 43);
    const auto high = dptk::RandomResizedCrop(8, {.smallest_scale = 1}).window(9, 90, random);
    CHECK(high.width == 9);
    CHECK(high.height == 12);
    CHECK(high.top == 39);
}

TEST_CASE("random crops and flips take all their values, and depend on seed, epoch and index alone") {
    const Image image = test::picture(6, 5);
    std::set<std::vector<std::uint8_t>> crops, flips;
    for (std::size_t i = 0; i < 200; ++i) {
        crops.insert(apply({dptk::RandomCrop(4)}, image, i).pixels);
        flips.insert(apply({dptk::RandomHorizontalFlip()}, image, i).pixels);
        CHECK(apply({dptk::RandomCrop(4)}, image, i) == apply({dptk::RandomCrop(4)}, image, i));
    }
    CHECK(crops.size() == 3 * 2);
    CHECK(flips == std::set{image.pixels, flip_horizontally(image).pixels});
    CHECK(apply({dptk::RandomHorizontalFlip(0)}, image) == image);
    CHECK(apply({dptk::RandomHorizontalFlip(1)}, image) == flip_horizontally(image));
    CHECK(apply({dptk::RandomCrop(9, 10, {.padding = 2})}, image) == pad(image, 2));
}

TEST_CASE("a program's own functions are transforms, with random numbers or without") {
    const auto invert = [](Image image) {
        for (std::uint8_t& pixel : image.pixels) pixel = static_cast<std::uint8_t>(255 - pixel);
        return image;
    };
    std::uint64_t bits = 0;
    const auto draw = [&bits](const Image& image, SampleRandom& random) {
        bits = random.bits();
        return image;
    };
    Image expected = test::picture(4, 3);
    const Image out = apply({invert, draw}, expected);
    CHECK(out == invert(expected));
    CHECK(bits == SampleRandom(7, 0, 0).bits());
}

TEST_CASE("transforms report what they cannot do") {
    const Image image = test::picture(6, 5);
    CHECK_THROWS_WITH_AS(static_cast<void>(apply({dptk::RandomCrop(7)}, image)),
                         "RandomCrop: expected an image of at least 7 x 7 pixels, found 6 x 5",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(static_cast<void>(crop(image, {.left = 3, .width = 4, .height = 1})),
                         "crop: expected a window within 6 x 5 pixels, found 4 x 1 pixels at (3, 0)",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(dptk::RandomResizedCrop(8, {.smallest_scale = 2}),
                         "RandomResizedCrop: expected 0 < smallest_scale <= largest_scale, found 2 and 1",
                         dptk::ArgumentError);
    CHECK_THROWS_AS(dptk::RandomResizedCrop(8, {.smallest_ratio = 0}), dptk::ArgumentError);
    CHECK_THROWS_AS(static_cast<void>(dptk::Resize(0)(image)), dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(dptk::Normalize({{0, 0}, {1}}),
                         "Normalize: expected as many means as deviations, found 2 and 1",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(dptk::Normalize({{0}, {0}}), "Normalize: the deviation of channel 0 is 0",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(static_cast<void>(values_of(image, {{0}, {1}})),
                         "Normalize: expected an image with 1 channels, found 3", dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(dptk::ImageTransforms({dptk::Normalize(dptk::imagenet), dptk::Resize(3)}),
                         "expected Normalize to be the last transform of an image, found another after it",
                         dptk::ArgumentError);
    const auto broken = [](Image part) {
        part.pixels.pop_back();
        return part;
    };
    CHECK_THROWS_WITH_AS(static_cast<void>(apply({broken}, image)),
                         "a transform returned an image of 6 x 5 pixels with 3 channels, and 89 bytes",
                         dptk::ArgumentError);
}
