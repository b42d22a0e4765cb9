#include "dptk/data/host_dataset.hpp"

#include <doctest/doctest.h>
#include <dptk/data/distributed_sampler.hpp>
#include <dptk/ddp.hpp>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {

using dptk::HostDataset;
using dptk::ProcessGroup;

/// Images of different sizes with labels, which counts how often one is read.
struct Pictures {
    std::size_t count = 0;
    std::size_t damaged = ~std::size_t{0};
    mutable std::atomic<std::int64_t> reads = 0;

    [[nodiscard]] std::size_t size() const noexcept { return count; }
    [[nodiscard]] std::uint64_t fingerprint() const noexcept { return count; }

    std::pair<dptk::Image, int> operator[](std::size_t i) const {
        ++reads;
        if (i == damaged) throw std::runtime_error("damaged");
        const std::size_t width = 50 + i % 60, height = 100;
        std::vector<std::uint8_t> pixels(width * height * 3, static_cast<std::uint8_t>(i));
        pixels.back() = 7;
        return {{width, height, 3, std::move(pixels)}, static_cast<int>(i)};
    }
};

/// Returns the bytes of shared pages that this process maps, each page divided by the processes that map it.
double shared_bytes() {
    std::ifstream maps("/proc/self/smaps");
    bool is_shared = false;
    double sum = 0;
    for (std::string line; std::getline(maps, line);) {
        unsigned long begin = 0, end = 0;
        double kilobytes = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
            is_shared = line.find("memfd:") != std::string::npos;
        } else if (is_shared && std::sscanf(line.c_str(), "Pss: %lf", &kilobytes) == 1) {
            sum += kilobytes * 1024;
        }
    }
    return sum;
}

}  // namespace

TEST_CASE("a host's copy has the samples of the dataset, each of which one rank reads") {
    test::on_ranks([](ProcessGroup& group) {
        for (const std::size_t count : {0U, 1U, 3U, 700U}) {
            Pictures pictures;
            pictures.count = count;
            const HostDataset copy(pictures, group);
            CHECK(group.all_reduce_value(pictures.reads.load()) == static_cast<std::int64_t>(count));
            REQUIRE(copy.size() == count);
            CHECK(copy.fingerprint() == count);
            for (std::size_t i = 0; i < count; ++i) CHECK(copy[i] == pictures[i]);
            group.barrier();  // no rank frees the memory that others read
        }
    });
}

TEST_CASE("samples may be of any type that has a Serializer") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<std::tuple<std::string, std::vector<double>, bool>> samples;
        for (int i = 0; i < 20; ++i)
            samples.emplace_back(std::string(static_cast<std::size_t>(i), 'x'), std::vector<double>{0.5 * i},
                                 i % 2);
        const HostDataset copy(samples, group);
        for (std::size_t i = 0; i < samples.size(); ++i) CHECK(copy[i] == samples[i]);
        const HostDataset numbers(std::vector{1, 2, 3}, group);
        CHECK(numbers[2] == 3);
        dptk::DistributedSampler sampler(numbers, group);  // a dataset as others
        CHECK(sampler.size() > 0);
        group.barrier();
    });
}

TEST_CASE("a sample that one rank cannot read is an error on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        Pictures pictures;
        pictures.count = 50;
        pictures.damaged = 41;
        std::string text;
        CHECK(test::throws<dptk::Error>(text, [&] { HostDataset copy(pictures, group); }));
        CHECK_MESSAGE(test::contains(text, "HostDataset: sample 41: damaged"), text);
        CHECK(group.all_reduce_value(1) == group.size());  // the group stays usable
        // The first sample is read for the fingerprint, too, here on one rank alone.
        struct Numbers {
            bool is_damaged;
            [[nodiscard]] std::size_t size() const noexcept { return 5; }
            int operator[](std::size_t i) const {
                if (i == 0 && is_damaged) throw std::runtime_error("damaged");
                return static_cast<int>(i);
            }
        };
        const Numbers numbers{group.rank() == group.size() - 1};
        CHECK(test::throws<dptk::Error>(text, [&] { HostDataset copy(numbers, group); }));
        CHECK_MESSAGE(test::contains(text, "HostDataset: the first or the last sample: damaged"), text);
        CHECK(group.all_reduce_value(1) == group.size());
    });
}

TEST_CASE("datasets that differ between ranks are an error on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        Pictures pictures;
        pictures.count = group.rank() == 0 ? 5 : 6;
        CHECK_THROWS_AS(HostDataset(pictures, group), dptk::MismatchError);
    });
}

TEST_CASE("the ranks of a host have one copy in memory") {
    test::on_ranks([](ProcessGroup& group) {
        Pictures pictures;
        pictures.count = 1000;
        const double before = shared_bytes();
        const HostDataset copy(pictures, group);
        if (!copy.is_shared() || !test::is_launched()) return;  // ranks that are threads share all memory
        group.barrier();
        const double copies =
            group.all_reduce_value(shared_bytes() - before) / static_cast<double>(copy.bytes());
        CHECK(copies < 1.1);
        CHECK(copies > 0.9);
        CHECK(copy.bytes() > 20'000'000);
        group.barrier();
    });
}
