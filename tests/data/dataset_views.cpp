#include "dptk/data/dataset_views.hpp"

#include <doctest/doctest.h>
#include <dptk/data/data_loader.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

TEST_CASE("a subset has the samples at its indices") {
    const std::vector<std::string> words = {"a", "b", "c"};
    const dptk::Subset subset(words, {2, 0, 2});
    CHECK(subset.size() == 3);
    CHECK(&subset[0] == &words[2]);
    CHECK(subset[1] == "a");
    CHECK_THROWS_WITH_AS(dptk::Subset(words, {1, 3}), "Subset: expected indices below 3, found 3",
                         dptk::ArgumentError);
    static_assert(dptk::IndexableDataset<decltype(subset)>);
}

TEST_CASE("datasets are concatenated, also empty ones") {
    const std::vector<int> a = {1, 2}, none, b = {3};
    const dptk::Concat<std::vector<int>> all({std::cref(none), std::cref(a), std::cref(none), std::cref(b)});
    CHECK(all.size() == 3);
    CHECK(all[0] == 1);
    CHECK(all[1] == 2);
    CHECK(all[2] == 3);
    CHECK(dptk::Concat<std::vector<int>>({}).size() == 0);
}

TEST_CASE("a function maps samples") {
    const std::vector<int> numbers = {1, 2, 3};
    const dptk::Map halves(numbers, [](int n) { return n / 2.0; });
    CHECK(halves.size() == 3);
    CHECK(halves[2] == 1.5);
    const dptk::Map quarters(halves, [](double x) { return x / 2; });
    CHECK(quarters[0] == 0.25);
}

TEST_CASE("arrays of a program are a dataset of rows, and a loader makes tensors of them") {
    const std::vector<float> pixels = {1, 2, 3, 4, 5, 6};
    const std::vector<int> labels = {7, 8, 9};
    const dptk::TensorDataset dataset(3, pixels, labels);
    CHECK(dataset.size() == 3);
    CHECK(std::get<0>(dataset[1])[1] == 4);
    dptk::DistributedSampler sampler(dataset.size(), 1, 0, {.shuffle = false});
    dptk::DataLoader loader(dataset, sampler, {.batch_size = 3, .workers = 1});
    for (const auto& [x, y] : loader) {
        CHECK(x.shape() == dptk::Shape{3, 2});
        CHECK(x[5] == 6);
        CHECK(y.shape() == dptk::Shape{3, 1});
        CHECK(y[2] == 9);
    }
    CHECK_THROWS_WITH_AS(dptk::TensorDataset(4, pixels, labels),
                         "TensorDataset: expected arrays of a multiple of 4 elements, found one of 6",
                         dptk::ArgumentError);
    CHECK(dptk::TensorDataset(0, std::vector<float>()).size() == 0);
}
