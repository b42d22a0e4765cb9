#include "dptk/data/batch_sampler.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <iterator>
#include <limits>
#include <ranges>
#include <set>
#include <span>
#include <type_traits>
#include <vector>

#include "dptk/data/distributed_sampler.hpp"

namespace {

using dptk::BatchSampler;
using dptk::DistributedSampler;
using dptk::Padding;
using Batches = std::vector<std::vector<std::size_t>>;

static_assert(std::ranges::input_range<const BatchSampler<DistributedSampler>>);
static_assert(std::ranges::random_access_range<const DistributedSampler>);
static_assert(std::is_constructible_v<BatchSampler<DistributedSampler>, DistributedSampler&, std::size_t>);
static_assert(!std::is_constructible_v<BatchSampler<DistributedSampler>, DistributedSampler, std::size_t>,
              "a temporary sampler would dangle");

Batches batches_of(const BatchSampler<DistributedSampler>& sampler) {
    Batches batches;
    for (std::span<const std::size_t> batch : sampler) batches.emplace_back(batch.begin(), batch.end());
    return batches;
}

}  // namespace

TEST_CASE("batches follow the sampler's order, and the last one may be shorter") {
    const DistributedSampler sampler(10, 2, 1, {.shuffle = false});
    Batches batches;
    for (std::span<const std::size_t> batch : dptk::BatchSampler(sampler, 2)) {
        batches.emplace_back(batch.begin(), batch.end());
    }
    CHECK(batches == Batches{{1, 3}, {5, 7}, {9}});
}

TEST_CASE("drop_last drops the batch that is not full") {
    const DistributedSampler sampler(10, 2, 1, {.shuffle = false});
    CHECK(batches_of(BatchSampler(sampler, 2, {.drop_last = true})) == Batches{{1, 3}, {5, 7}});
}

TEST_CASE("a rank with fewer indices gets an empty batch if another rank has one left") {
    const DistributedSampler more(5, 2, 0, {.shuffle = false, .padding = Padding::none});
    const DistributedSampler fewer(5, 2, 1, {.shuffle = false, .padding = Padding::none});
    CHECK(batches_of(BatchSampler(more, 2)) == Batches{{0, 2}, {4}});
    CHECK(batches_of(BatchSampler(fewer, 2)) == Batches{{1, 3}, {}});
    CHECK(batches_of(BatchSampler(more, 2, {.drop_last = true})) == Batches{{0, 2}});
    CHECK(batches_of(BatchSampler(fewer, 2, {.drop_last = true})) == Batches{{1, 3}});
}

TEST_CASE("all ranks get equally many batches, which hold all of the rank's indices") {
    for (const Padding padding : {Padding::repeat, Padding::none}) {
        for (std::size_t n = 0; n <= 40; ++n) {
            for (std::size_t replicas = 1; replicas <= 9; ++replicas) {
                for (std::size_t batch_size = 1; batch_size <= 7; ++batch_size) {
                    CAPTURE(n);
                    CAPTURE(replicas);
                    CAPTURE(batch_size);
                    std::set<std::size_t> counts;
                    for (std::size_t rank = 0; rank < replicas; ++rank) {
                        const DistributedSampler sampler(n, replicas, rank, {.padding = padding});
                        const BatchSampler batches(sampler, batch_size);
                        counts.insert(batches.size());
                        std::vector<std::size_t> joined;
                        for (const auto& batch : batches_of(batches)) {
                            joined.insert(joined.end(), batch.begin(), batch.end());
                        }
                        CHECK(joined == std::vector<std::size_t>(sampler.begin(), sampler.end()));
                    }
                    CHECK(counts.size() == 1);
                }
            }
        }
    }
}

TEST_CASE("with drop_last all ranks get equally many batches, and all are full") {
    for (std::size_t n = 0; n <= 40; ++n) {
        for (std::size_t batch_size = 1; batch_size <= 7; ++batch_size) {
            std::set<std::size_t> counts;
            for (std::size_t rank = 0; rank < 3; ++rank) {
                const DistributedSampler sampler(n, 3, rank, {.padding = Padding::none});
                const Batches batches = batches_of(BatchSampler(sampler, batch_size, {.drop_last = true}));
                counts.insert(batches.size());
                for (const auto& batch : batches) CHECK(batch.size() == batch_size);
            }
            CHECK(counts.size() == 1);
        }
    }
}

TEST_CASE("a batch sampler uses the sampler's current epoch") {
    DistributedSampler sampler(20, 2, 0);
    const BatchSampler batches(sampler, 3);
    const Batches first = batches_of(batches);
    sampler.set_epoch(1);
    CHECK(batches_of(batches) != first);
    CHECK(batches_of(batches) == batches_of(BatchSampler(sampler, 3)));
}

TEST_CASE("a batch size beyond the share makes one batch of everything") {
    const DistributedSampler sampler(3, 1, 0, {.shuffle = false});
    CHECK(batches_of(BatchSampler(sampler, std::numeric_limits<std::size_t>::max())) == Batches{{0, 1, 2}});
}

TEST_CASE("a sampler without indices makes no batches") {
    const DistributedSampler sampler(0, 2, 1);
    CHECK(BatchSampler(sampler, 4).size() == 0);
    CHECK(batches_of(BatchSampler(sampler, 4)).empty());
}

TEST_CASE("batches of zero indices are refused") {
    const DistributedSampler sampler(3, 1, 0);
    CHECK_THROWS_WITH_AS(BatchSampler(sampler, 0), doctest::Contains("at least 1, found 0"),
                         dptk::ArgumentError);
}
