#include "dptk/data/data_loader.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using dptk::DataLoader;
using dptk::DistributedSampler;
using Indices = std::vector<std::size_t>;

/// Sample i is a row of three numbers, and a label.
struct Rows {
    std::size_t samples = 103;

    [[nodiscard]] std::size_t size() const { return samples; }
    [[nodiscard]] std::pair<std::vector<float>, std::int64_t> get(std::size_t i) const {
        const auto first = static_cast<float>(i);
        return {{first, first + 0.25F, first + 0.5F}, static_cast<std::int64_t>(i % 7)};
    }
};

/// A dataset whose samples a function makes.
template <class Fn>
struct Made {
    std::size_t samples;
    Fn make;

    [[nodiscard]] std::size_t size() const { return samples; }
    [[nodiscard]] auto get(std::size_t i) const { return make(i); }
};

template <class Fn>
Made(std::size_t, Fn) -> Made<Fn>;

constexpr std::size_t worker_counts[] = {0, 1, 4};

}  // namespace

TEST_CASE("a loader makes the sampler's batches in order, whatever the number of workers is") {
    const Rows dataset;
    for (const std::size_t workers : worker_counts) {
        for (const std::size_t prefetch : {std::size_t{1}, std::size_t{3}}) {
            DistributedSampler sampler(dataset.size(), 2, 1, {.seed = 5, .padding = dptk::Padding::none});
            DataLoader loader(dataset, sampler,
                              {.batch_size = 8, .workers = workers, .prefetch_factor = prefetch});
            CHECK(loader.size() == 7);
            for (int epoch = 0; epoch < 3; ++epoch) {
                sampler.set_epoch(epoch);
                Indices expected(sampler.begin(), sampler.end()), found;
                for (const auto& [values, labels] : loader) {
                    const auto count = labels.size();
                    CHECK(values.shape() == dptk::Shape{count, 3});
                    for (std::size_t i = 0; i < count; ++i) {
                        found.push_back(static_cast<std::size_t>(values[3 * i]));
                        CHECK(values[3 * i + 2] == values[3 * i] + 0.5F);
                        CHECK(labels[i] == static_cast<std::int64_t>(found.back() % 7));
                    }
                }
                CHECK(found == expected);
            }
        }
    }
}

TEST_CASE("ranks have equally many batches, the last of them perhaps shorter or empty") {
    const Rows dataset{9};
    DistributedSampler sampler(dataset.size(), 2, 1, {.shuffle = false, .padding = dptk::Padding::none});
    DataLoader loader(dataset, sampler, {.batch_size = 4, .workers = 2});
    Indices sizes;
    for (const auto& [values, labels] : loader) sizes.push_back(labels.size());
    CHECK(sizes == Indices{4, 0});
    DataLoader full(dataset, sampler, {.batch_size = 4, .drop_last = true, .workers = 2});
    CHECK(full.size() == 1);
    const Rows none{0};
    DistributedSampler no_indices(0, 1, 0);
    DataLoader empty(none, no_indices, {.workers = 2});
    for (const auto& batch : empty) {
        static_cast<void>(batch);
        FAIL("there is no batch");
    }
}

TEST_CASE("a batch depends on the type of the samples") {
    DistributedSampler sampler(6, 1, 0, {.shuffle = false});
    const std::vector<double> numbers = {1, 2, 3, 4, 5, 6};
    DataLoader of_numbers(numbers, sampler, {.batch_size = 6, .workers = 1});
    for (const std::vector<double>& batch : of_numbers) CHECK(batch == numbers);

    const std::vector<std::string> words = {"a", "b", "c", "d", "e", "f"};
    DataLoader of_words(words, sampler, {.batch_size = 4, .workers = 1});
    std::vector<std::string> joined;
    for (const std::vector<std::string>& batch : of_words)
        joined.insert(joined.end(), batch.begin(), batch.end());
    CHECK(joined == words);

    const Made with_kind{6, [](std::size_t i) {
                             return std::tuple(i, std::string(i, 'x'), std::array{i, i});
                         }};
    DataLoader of_tuples(with_kind, sampler, {.batch_size = 3, .workers = 1});
    for (const auto& [index, word, both] : of_tuples) {
        CHECK(word[2].size() == index[2]);
        CHECK(both[5] == index[2]);
    }

    DataLoader summed(numbers, sampler, {.batch_size = 4, .workers = 2}, [](std::span<double> samples) {
        return std::accumulate(samples.begin(), samples.end(), 0.0);
    });
    std::vector<double> sums;
    for (const double sum : summed) sums.push_back(sum);
    CHECK(sums == std::vector<double>{10, 11});

    const Made movable{6, [](std::size_t i) { return std::make_unique<std::size_t>(i); }};
    DataLoader of_pointers(movable, sampler, {.batch_size = 6, .workers = 1});
    for (const auto& batch : of_pointers) CHECK(*batch[5] == 5);
}

namespace {

/// Batches of 1, 2, 3 and 0 samples.
struct GrowingBatches {
    [[nodiscard]] std::size_t size() const { return 4; }
    [[nodiscard]] Indices operator[](std::size_t i) const {
        const std::vector<Indices> batches = {{9}, {8, 7}, {6, 5, 4}, {}};
        return batches[i];
    }
};

/// Sums the labels of a batch.
struct LabelSum {
    using Sample = std::pair<std::vector<float>, std::int64_t>;
    using Batch = std::int64_t;
    std::int64_t first = 0;

    template <class SampleAt>
    void fill(Batch& batch, std::size_t count, SampleAt&& sample_at) const {
        batch = first;
        for (std::size_t i = 0; i < count; ++i) batch += sample_at(i).second;
    }
};

}  // namespace

TEST_CASE("a sampler of batches decides how long they are, and a collation object makes them") {
    const Rows dataset;
    const GrowingBatches batches;
    for (const std::size_t workers : worker_counts) {
        DataLoader<Rows, const GrowingBatches, LabelSum> loader(
            dataset, batches, {.batch_size = 50, .workers = workers}, LabelSum{100});
        CHECK(loader.size() == 4);
        for (int pass = 0; pass < 2; ++pass) {
            std::vector<std::int64_t> sums;
            for (const std::int64_t sum : loader) sums.push_back(sum);
            CHECK(sums == std::vector<std::int64_t>{102, 101, 115, 100});
        }
    }
    DataLoader plain(dataset, batches, {.workers = 1});
    std::size_t samples = 0;
    for (const auto& [rows, labels] : plain) samples += labels.size();
    CHECK(samples == 6);
}

TEST_CASE("an error in a worker reaches the consumer at its batch, and the next pass works") {
    std::atomic<bool> fails = true;
    const Made dataset{100, [&](std::size_t i) {
                           if (i == 42 && fails) throw std::runtime_error("picture.jpg: cut off");
                           return i;
                       }};
    for (const std::size_t workers : worker_counts) {
        fails = true;
        DistributedSampler sampler(dataset.size(), 1, 0, {.shuffle = false});
        DataLoader loader(dataset, sampler, {.batch_size = 10, .workers = workers});
        std::size_t batches = 0;
        try {
            for (const auto& batch : loader) batches += batch.size() / 10;
            FAIL("the pass has ended");
        } catch (const dptk::SampleError& error) {
            CHECK(error.index() == 42);
            CHECK(std::string(error.what()) == "DataLoader: sample 42: picture.jpg: cut off");
        }
        CHECK(batches == 4);
        CHECK(loader.state().sampler.consumed == 40);
        fails = false;
        batches = 0;
        for (const auto& batch : loader) batches += batch.size() / 10;
        CHECK(batches == 10);
    }
}

TEST_CASE("samples of different lengths are an error that names the sample") {
    const Made dataset{10, [](std::size_t i) { return std::vector<int>(i == 6 ? 2 : 3); }};
    DistributedSampler sampler(dataset.size(), 1, 0, {.shuffle = false});
    DataLoader loader(dataset, sampler, {.batch_size = 5, .workers = 1});
    CHECK_THROWS_WITH_AS(
        [&] {
            for (const auto& batch : loader) static_cast<void>(batch);
        }(),
        "DataLoader: sample 6: expected 3 elements, as in the first sample of the batch, got 2",
        dptk::SampleError);
}

TEST_CASE("a loop may be left early, and a loader destroyed during a pass of slow samples") {
    const Made dataset{1000, [](std::size_t i) {
                           std::this_thread::sleep_for(std::chrono::milliseconds(1));
                           return i;
                       }};
    DistributedSampler sampler(dataset.size(), 1, 0, {.shuffle = false});
    DataLoader loader(dataset, sampler, {.batch_size = 2, .workers = 4});
    for (int pass = 0; pass < 5; ++pass) {
        for (const auto& batch : loader) {
            CHECK(batch[0] == 0);
            break;
        }
    }
    auto other = std::make_unique<DataLoader<decltype(dataset), DistributedSampler>>(
        dataset, sampler, dptk::DataLoaderOptions{.batch_size = 2, .workers = 4});
    {
        auto first = other->begin();
        CHECK((*first)[1] == 1);
        CHECK_THROWS_WITH_AS(static_cast<void>(other->begin()), doctest::Contains("during a pass"),
                             dptk::ArgumentError);
        CHECK_THROWS_AS(other->restore(other->state()), dptk::ArgumentError);
    }
    other.reset();
}

TEST_CASE("leaving a loop does not wait for the rest of a batch that a worker makes") {
    constexpr std::size_t batch = 10000;
    std::atomic<std::size_t> reads = 0;
    const Made dataset{2 * batch, [&](std::size_t i) {
                           if (i < batch) return i;
                           ++reads;
                           std::this_thread::sleep_for(std::chrono::milliseconds(1));
                           return i;
                       }};
    DistributedSampler sampler(dataset.size(), 1, 0, {.shuffle = false});
    DataLoader loader(dataset, sampler, {.batch_size = batch, .workers = 1});
    for (const auto& first : loader) {
        CHECK(first.size() == batch);
        while (reads == 0) std::this_thread::yield();
        break;
    }
    CHECK(reads < batch);
}

TEST_CASE("a continued pass has the batches that the consumer has not received, whatever was prefetched") {
    const Rows dataset;
    const auto rest = [&](DataLoader<Rows, DistributedSampler>& loader, std::size_t most = 1000) {
        Indices found;
        for (const auto& [values, labels] : loader) {
            for (std::size_t i = 0; i < labels.size(); ++i)
                found.push_back(static_cast<std::size_t>(values[3 * i]));
            if (--most == 0) break;
        }
        return found;
    };
    for (const std::size_t workers : worker_counts) {
        DistributedSampler sampler(dataset.size(), 1, 0, {.seed = 3, .padding = dptk::Padding::none});
        sampler.set_epoch(1);
        const dptk::DataLoaderOptions options{.batch_size = 10, .workers = workers, .prefetch_factor = 4};
        DataLoader loader(dataset, sampler, options);
        const Indices whole = rest(loader);
        for (std::size_t seen = 1; seen <= loader.size(); ++seen) {
            const Indices before = rest(loader, seen);
            const std::string state = loader.state().to_text();
            DistributedSampler second_sampler(dataset.size(), 1, 0,
                                              {.seed = 3, .padding = dptk::Padding::none});
            DataLoader second(dataset, second_sampler, options);
            second.restore(dptk::DataLoaderState::from_text(state));
            CHECK(second.state() == loader.state());
            Indices all = before;
            for (const std::size_t index : rest(second)) all.push_back(index);
            CHECK(all == whole);
            CHECK(second.state().sampler.consumed == dataset.size());
        }
    }
}

TEST_CASE("a state before the first pass of an epoch has the whole epoch") {
    const std::vector<int> dataset(40);
    DistributedSampler sampler(dataset.size(), 1, 0, {.padding = dptk::Padding::none});
    DataLoader loader(dataset, sampler, {.batch_size = 10});
    for (int epoch = 0; epoch < 2; ++epoch) {
        sampler.set_epoch(epoch);
        CHECK(loader.state().sampler.epoch == epoch);
        CHECK(loader.state().sampler.consumed == 0);
        CHECK(std::ranges::distance(loader.begin(), loader.end()) == 4);
        CHECK(loader.state().sampler.consumed == 40);
    }
    DistributedSampler second_sampler(dataset.size(), 1, 0, {.padding = dptk::Padding::none});
    DataLoader second(dataset, second_sampler, {.batch_size = 10});
    second.restore(loader.state());
    CHECK(second.state() == loader.state());
    second_sampler.set_epoch(2);
    CHECK(second.state().sampler.consumed == 0);
    CHECK(std::ranges::distance(second.begin(), second.end()) == 4);
}

TEST_CASE("the state of another dataset is an error") {
    const std::vector<int> dataset = {1, 2, 3}, other = {1, 2, 4};
    DistributedSampler sampler(dataset.size(), 1, 0);
    DataLoader loader(dataset, sampler), second(other, sampler);
    CHECK_THROWS_WITH_AS(second.restore(loader.state()), doctest::Contains("that of another dataset"),
                         dptk::ArgumentError);
    CHECK(dptk::DataLoaderState::from_text(loader.state().to_text()) == loader.state());
    CHECK(loader.state().to_text().size() < 250);
    CHECK_THROWS_AS(static_cast<void>(dptk::DataLoaderState::from_text("")), dptk::FormatError);
    CHECK_THROWS_AS(static_cast<void>(dptk::DataLoaderState::from_text("fingerprint=x")), dptk::FormatError);
}

TEST_CASE("options that are not valid are errors") {
    const std::vector<int> dataset = {1, 2, 3};
    DistributedSampler sampler(dataset.size(), 1, 0);
    using Loader = DataLoader<std::vector<int>, DistributedSampler>;
    CHECK_THROWS_WITH_AS(Loader(dataset, sampler, {.batch_size = 0}),
                         doctest::Contains("at least 1, found 0"), dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(Loader(dataset, sampler, {.workers = static_cast<std::size_t>(-1)}),
                         "DataLoader: workers must be in [0, 1024], found -1", dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(Loader(dataset, sampler, {.prefetch_factor = 0}),
                         "DataLoader: prefetch_factor must be in [1, 1024], found 0", dptk::ArgumentError);
}

TEST_CASE("a fingerprint depends on the size and on the first and the last sample") {
    const Rows rows;
    CHECK(dptk::dataset_fingerprint(rows) == dptk::dataset_fingerprint(Rows{}));
    CHECK(dptk::dataset_fingerprint(rows) != dptk::dataset_fingerprint(Rows{104}));
    const std::vector<std::string> words = {"ab", "c"}, others = {"ab", "d"};
    CHECK(dptk::dataset_fingerprint(words) != dptk::dataset_fingerprint(others));
    CHECK(dptk::dataset_fingerprint(std::vector<int>{}) == dptk::dataset_fingerprint(std::vector<int>{}));
}
