#include "dptk/data/image_batch.hpp"

#include <doctest/doctest.h>
#include <dptk/data/data_loader.hpp>
#include <dptk/data/distributed_sampler.hpp>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data/transforms/pictures.hpp"

namespace {

using dptk::DataLoader;
using dptk::DistributedSampler;
using dptk::Image;

DistributedSampler in_order(std::size_t size) {
    return {size, 1, 0, {.shuffle = false}};
}

}  // namespace

TEST_CASE("a batch of images is a tensor with values in [0, 1], with what belongs to each image") {
    const Image image{2, 1, 3, {0, 51, 255, 102, 153, 204}};
    const std::vector<std::tuple<Image, int, std::string>> dataset(3, {image, 7, "x"});
    DistributedSampler sampler = in_order(dataset.size());
    DataLoader loader(dataset, sampler, {.batch_size = 2, .workers = 1});
    std::size_t samples = 0;
    for (const auto& [pixels, labels, names] : loader) {
        const std::size_t n = labels.size();
        CHECK(pixels.shape() == dptk::Shape{n, 3, 1, 2});
        for (std::size_t i = 0; i < n; ++i) {
            const std::vector<float> expected{0, 0.4F, 0.2F, 0.6F, 1, 0.8F};  // by channel
            const auto values = pixels.values().subspan(i * 6, 6);
            CHECK(std::vector<float>(values.begin(), values.end()) == expected);
        }
        CHECK(names == std::vector<std::string>(n, "x"));
        samples += n;
    }
    CHECK(samples == 3);
}

TEST_CASE("the loader's random transforms change with the epoch, and not with the place in it") {
    const std::vector<Image> dataset(8, test::picture(12, 12));
    DistributedSampler sampler(dataset.size(), 1, 0, {.seed = 3});
    DataLoader loader(dataset, sampler, {.batch_size = 8, .workers = 2, .transform = {dptk::RandomCrop(4)}});
    const auto images_of = [&](std::int64_t epoch) {
        sampler.set_epoch(epoch);
        std::vector<std::vector<float>> by_index(dataset.size());
        auto index = sampler.begin();
        for (const dptk::Tensor<float>& pixels : loader) {
            for (std::size_t i = 0; i < pixels.shape()[0]; ++i, ++index) {
                const auto values = pixels.values().subspan(i * 48, 48);
                by_index[*index].assign(values.begin(), values.end());
            }
        }
        return by_index;
    };
    const auto first = images_of(0), second = images_of(1);
    CHECK(images_of(0) == first);
    CHECK(first != second);
    CHECK(first[0] != first[1]);
    dptk::SampleRandom random(3, 1, 5);
    const Image expected = dptk::RandomCrop(4)(dataset[5], random);
    CHECK(second[5][0] == static_cast<float>(expected.pixels[0]) / 255);
}

TEST_CASE("with a sampler of batches, the random transforms change with its epoch, or else with the pass") {
    const std::vector<Image> dataset(8, test::picture(12, 12));
    const dptk::DataLoaderOptions options{.workers = 1, .transform = {dptk::RandomCrop(4)}};
    const auto values_of = [](auto& loader) {
        std::vector<float> all;
        for (const dptk::Tensor<float>& pixels : loader)
            all.insert(all.end(), pixels.values().begin(), pixels.values().end());
        return all;
    };
    DistributedSampler sampler = in_order(dataset.size());
    const dptk::BatchSampler batches(sampler, 3);
    DataLoader loader(dataset, batches, options);
    DataLoader by_index(dataset, sampler, options);
    const std::vector<float> first = values_of(loader);
    CHECK(first == values_of(loader));
    CHECK(first == values_of(by_index));
    sampler.set_epoch(1);
    CHECK(first != values_of(loader));

    const std::vector<std::vector<std::size_t>> plain = {{0, 1}, {7}};
    DataLoader other(dataset, plain, options);
    CHECK(values_of(other) != values_of(other));
}

TEST_CASE("a collate function of the program gets transformed images of bytes") {
    const std::vector<std::pair<Image, int>> dataset(4, {test::picture(5, 6), 1});
    DistributedSampler sampler = in_order(dataset.size());
    const auto sum_widths = [](std::span<std::pair<Image, int>> samples) {
        std::size_t sum = 0;
        for (const auto& [image, label] : samples) sum += image.width;
        return sum;
    };
    DataLoader loader(dataset, sampler, {.batch_size = 4, .transform = {dptk::Resize(3, 9)}}, sum_widths);
    for (const std::size_t sum : loader) CHECK(sum == 36);
    CHECK_THROWS_WITH_AS(
        DataLoader(dataset, sampler, {.transform = {dptk::Normalize(dptk::imagenet)}}, sum_widths),
        "DataLoader: Normalize needs the default collate function; this program passes its own, which gets "
        "samples of bytes",
        dptk::ArgumentError);
}

TEST_CASE("transforms that do not fit the samples are errors") {
    const std::vector<int> numbers(3);
    DistributedSampler sampler = in_order(numbers.size());
    CHECK_THROWS_WITH_AS(
        DataLoader(numbers, sampler, {.transform = {dptk::Resize(3)}}),
        "DataLoader: `transform` needs samples that are a dptk::Image, or pairs that begin with "
        "one; use dptk::Map for other samples",
        dptk::ArgumentError);
    const std::vector<Image> sizes{test::picture(5, 6), test::picture(5, 7)};
    DistributedSampler two = in_order(2);
    DataLoader uneven(sizes, two, {.batch_size = 2, .workers = 0});
    CHECK_THROWS_WITH_AS(
        static_cast<void>(uneven.begin()),
        "DataLoader: sample 1: expected an image of 5 x 6 pixels with 3 channels, as the first one "
        "of the batch, found 5 x 7 with 3: add a transform that gives all images one size",
        dptk::SampleError);
    const auto fails = [](const Image&) -> Image { throw std::runtime_error("no"); };
    DataLoader failing(sizes, two, {.workers = 2, .transform = {fails}});
    CHECK_THROWS_WITH_AS(static_cast<void>(failing.begin()), "DataLoader: sample 0: no", dptk::SampleError);
}
