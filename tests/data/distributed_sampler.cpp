#include "dptk/data/distributed_sampler.hpp"

#include "dptk/data/batch_sampler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <iterator>
#include <numeric>
#include <ranges>
#include <string>
#include <vector>

namespace {

using dptk::DistributedSampler;
using dptk::DistributedSamplerOptions;
using dptk::Padding;
using Indices = std::vector<std::size_t>;

static_assert(std::ranges::random_access_range<const DistributedSampler>);

struct FixedGroup {
    int my_rank;
    int world_size;

    int rank() const { return my_rank; }

    int size() const { return world_size; }
};

Indices indices_of(const DistributedSampler& sampler) {
    return Indices(sampler.begin(), sampler.end());
}

class Fnv1a {
  public:
    void add(std::size_t value) {
        for (int shift = 0; shift < 32; shift += 8) {
            checksum_ = (checksum_ ^ (value >> shift & 0xFF)) * 0x100000001B3;
        }
    }

    std::uint64_t checksum() const { return checksum_; }

  private:
    std::uint64_t checksum_ = 0xCBF29CE484222325;
};

/// Computes the checksum like record_distributed_sampler.py, which uses torch's sampler.
std::uint64_t checksum_over_all_settings(std::size_t n, std::size_t replicas) {
    Fnv1a checksum;
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{7}, (std::uint64_t{1} << 32) + 1}) {
        for (const std::int64_t epoch : {0, 1, 5}) {
            for (const bool shuffle : {false, true}) {
                for (const bool drop_last : {false, true}) {
                    for (std::size_t rank = 0; rank < replicas; ++rank) {
                        DistributedSampler sampler(
                            n, replicas, rank, {.shuffle = shuffle, .seed = seed, .drop_last = drop_last});
                        sampler.set_epoch(epoch);
                        checksum.add(sampler.size());
                        for (const std::size_t index : sampler) checksum.add(index);
                    }
                }
            }
        }
    }
    return checksum.checksum();
}

}  // namespace

TEST_CASE("a sampler has the indices of torch's sampler, padding by repetition") {
    const std::vector<std::vector<Indices>> expected = {{{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}},
                                                        {{5, 2, 9, 4}, {6, 0, 3, 5}, {1, 8, 7, 6}}};
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CAPTURE(rank);
        DistributedSampler sampler(10, 3, rank);
        CHECK(indices_of(sampler) == expected[0][rank]);
        sampler.set_epoch(1);
        CHECK(indices_of(sampler) == expected[1][rank]);
    }
}

TEST_CASE("with more than twice as many replicas as samples, padding repeats more than once") {
    const Indices expected = {0, 1, 2, 0, 1, 2, 0};
    for (std::size_t rank = 0; rank < 7; ++rank) {
        CHECK(indices_of(DistributedSampler(3, 7, rank, {.shuffle = false})) == Indices{expected[rank]});
    }
}

TEST_CASE("a sampler equals torch's for every n up to 200, world size up to 9, and kind of order") {
    std::ifstream recorded(DPTK_TEST_SOURCE_DIR "/data/distributed_sampler_torch.txt");
    std::size_t n = 0;
    std::size_t replicas = 0;
    std::uint64_t expected = 0;
    std::size_t lines = 0;
    while (recorded >> std::dec >> n >> replicas >> std::hex >> expected) {
        CAPTURE(n);
        CAPTURE(replicas);
        CHECK(checksum_over_all_settings(n, replicas) == expected);
        ++lines;
    }
    CHECK(lines == 201 * 9);
}

TEST_CASE("with drop_last and fewer samples than replicas, no rank has indices") {
    const DistributedSampler sampler(3, 4, 0, {.drop_last = true});
    CHECK(sampler.size() == 0);
    CHECK(sampler.largest_share() == 0);
}

TEST_CASE("an empty dataset gives no indices, padded or not") {
    for (const Padding padding : {Padding::repeat, Padding::none}) {
        DistributedSampler sampler(0, 4, 3, {.padding = padding});
        sampler.set_epoch(2);
        CHECK(sampler.size() == 0);
        CHECK(sampler.largest_share() == 0);
        CHECK(sampler.smallest_share() == 0);
    }
}

TEST_CASE("without padding each sample occurs exactly once, and shares differ by at most one") {
    for (std::size_t n = 0; n <= 70; ++n) {
        for (std::size_t replicas = 1; replicas <= 20; ++replicas) {
            CAPTURE(n);
            CAPTURE(replicas);
            Indices times_dealt(n);
            std::size_t largest = 0;
            std::size_t smallest = n;
            for (std::size_t rank = 0; rank < replicas; ++rank) {
                DistributedSampler sampler(n, replicas, rank, {.seed = 3, .padding = Padding::none});
                sampler.set_epoch(4);
                for (const std::size_t index : sampler) ++times_dealt[index];
                largest = std::max(largest, sampler.size());
                smallest = std::min(smallest, sampler.size());
                CHECK(sampler.share(rank) == sampler.size());
                CHECK(sampler.largest_share() - sampler.smallest_share() <= 1);
            }
            CHECK(times_dealt == Indices(n, 1));
            const DistributedSampler any(n, replicas, 0, {.padding = Padding::none});
            CHECK(any.largest_share() == largest);
            CHECK(any.smallest_share() == smallest);
        }
    }
}

TEST_CASE("without padding the order is the padded one's, cut at its end") {
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CAPTURE(rank);
        const Indices padded = indices_of(DistributedSampler(10, 3, rank));
        const Indices bare = indices_of(DistributedSampler(10, 3, rank, {.padding = Padding::none}));
        CHECK(bare.size() == (rank == 0 ? 4 : 3));
        CHECK(std::equal(bare.begin(), bare.end(), padded.begin()));
    }
}

TEST_CASE("the shares that a sampler reports are the sizes of all ranks' samplers") {
    for (const DistributedSamplerOptions options :
         {DistributedSamplerOptions{}, DistributedSamplerOptions{.drop_last = true},
          DistributedSamplerOptions{.padding = Padding::none}}) {
        const DistributedSampler first(14, 4, 0, options);
        for (std::size_t rank = 0; rank < 4; ++rank) {
            CHECK(first.share(rank) == DistributedSampler(14, 4, rank, options).size());
        }
        CHECK_THROWS_AS(static_cast<void>(first.share(4)), dptk::ArgumentError);
    }
}

TEST_CASE("a sampler uses the size of a dataset and the rank of a group") {
    const std::vector<float> dataset(10);
    const FixedGroup group{.my_rank = 1, .world_size = 3};
    const DistributedSampler from_dataset(dataset, group, {.seed = 7});
    const DistributedSampler from_size(10, group, {.seed = 7});
    CHECK(from_dataset.dataset_size() == 10);
    CHECK(from_dataset.num_replicas() == 3);
    CHECK(from_dataset.rank() == 1);
    CHECK(indices_of(from_dataset) == indices_of(DistributedSampler(10, 3, 1, {.seed = 7})));
    CHECK(indices_of(from_size) == indices_of(from_dataset));
}

TEST_CASE("setting the current epoch again keeps iterators valid") {
    DistributedSampler sampler(100, 2, 0);
    sampler.set_epoch(3);
    CHECK(sampler.epoch() == 3);
    const auto fifth = sampler.begin() + 5;
    const std::size_t before = *fifth;
    sampler.set_epoch(3);
    CHECK(*fifth == before);
    CHECK(fifth[-5] == sampler[0]);
    CHECK(sampler.end() - fifth == 45);
}

TEST_CASE("an epoch's indices do not depend on the epochs before it") {
    DistributedSampler sampler(50, 2, 1);
    const Indices first = indices_of(sampler);
    sampler.set_epoch(9);
    CHECK(indices_of(sampler) != first);
    sampler.set_epoch(0);
    CHECK(indices_of(sampler) == first);
}

TEST_CASE("seed and epoch are added, and an epoch may be beyond 2^32 or negative") {
    const Indices expected = indices_of(DistributedSampler(50, 2, 1, {.seed = 5}));
    DistributedSampler later(50, 2, 1, {.seed = 2});
    later.set_epoch((std::int64_t{1} << 32) + 3);
    CHECK(indices_of(later) == expected);
    DistributedSampler earlier(50, 2, 1, {.seed = 6});
    earlier.set_epoch(-1);
    CHECK(indices_of(earlier) == expected);
}

TEST_CASE("a rank outside the replicas is refused, with the interval and the rank") {
    CHECK_THROWS_WITH_AS(DistributedSampler(10, 4, 4), doctest::Contains("rank must be in [0, 3], found 4"),
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(DistributedSampler(10, FixedGroup{.my_rank = -1, .world_size = 4}),
                         doctest::Contains("rank must be in [0, 3], found -1"), dptk::ArgumentError);
}

TEST_CASE("zero and negative numbers of replicas are refused") {
    CHECK_THROWS_WITH_AS(DistributedSampler(10, 0, 0), doctest::Contains("num_replicas must be in [1, "),
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(DistributedSampler(10, FixedGroup{.my_rank = 0, .world_size = -2}),
                         doctest::Contains("found -2"), dptk::ArgumentError);
}

TEST_CASE("dropping samples and counting each once contradict each other") {
    CHECK_THROWS_WITH_AS(DistributedSampler(10, 4, 0, {.drop_last = true, .padding = Padding::none}),
                         doctest::Contains("drop_last"), dptk::ArgumentError);
}

TEST_CASE("a computed order has each sample once, differs in each epoch, and pads from its start") {
    for (const std::size_t n : {1U, 2U, 10U, 1023U, 1025U, 5000U}) {
        for (const std::size_t replicas : {1U, 2U, 3U, 7U}) {
            CAPTURE(n);
            CAPTURE(replicas);
            DistributedSamplerOptions options{
                .seed = 11, .padding = Padding::none, .order = dptk::Order::computed};
            Indices all;
            for (std::size_t rank = 0; rank < replicas; ++rank) {
                const Indices own = indices_of(DistributedSampler(n, replicas, rank, options));
                all.insert(all.end(), own.begin(), own.end());
            }
            std::ranges::sort(all);
            Indices expected(n);
            std::iota(expected.begin(), expected.end(), std::size_t{0});
            CHECK(all == expected);

            options.padding = Padding::repeat;
            DistributedSampler first(n, replicas, 0, options);
            const DistributedSampler last(n, replicas, replicas - 1, options);
            CHECK(first.size() == last.size());
            if (n % replicas == replicas - 1 && replicas > 1) CHECK(last[last.size() - 1] == first[0]);
            const Indices before = indices_of(first);
            first.set_epoch(1);
            if (n > 100) CHECK(indices_of(first) != before);
            first.set_epoch(0);
            CHECK(indices_of(first) == before);
        }
    }
}

TEST_CASE("a computed order of 10^12 samples needs almost no memory") {
    constexpr std::size_t n = 1'000'000'000'000;
    DistributedSampler sampler(n, 1000, 999, {.order = dptk::Order::computed});
    CHECK(sampler.size() == n / 1000);
    const std::size_t index = sampler[sampler.size() - 1];
    CHECK(index < n);
    sampler.set_epoch(5);
    CHECK(sampler[sampler.size() - 1] != index);
    const dptk::BatchSampler batches(sampler, 64);
    CHECK(batches.size() == n / 1000 / 64);
    CHECK(batches[batches.size() - 1].size() == 64);
}
