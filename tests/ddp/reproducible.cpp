// ReproducibleDataParallel: the result is bitwise equal for every number of ranks.
#include <doctest/doctest.h>
#include <dptk/comm/self.hpp>
#include <dptk/ddp/reproducible.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;

/// Returns the parameters after fifty steps with this number of shards.
template <class T>
std::vector<std::vector<T>> train(ProcessGroup& group, std::size_t shards) {
    test::SmallNet<T> net(group.rank());
    dptk::ReproducibleDataParallel training(group, net.values, net.gradients, shards);
    std::vector<dptk::DistributedSampler> samplers;
    for (const std::size_t s : training.shards())
        samplers.emplace_back(1000, static_cast<int>(shards), static_cast<int>(s),
                              dptk::DistributedSamplerOptions{.seed = 3});
    std::vector<std::vector<std::size_t>> orders;
    for (const auto& sampler : samplers) orders.emplace_back(sampler.begin(), sampler.end());
    for (std::size_t step = 0; step < 50; ++step) {
        for (std::size_t n = 0; n < orders.size(); ++n) {
            // Shards have different sizes, and some are empty.
            const std::size_t size = (step + training.shards()[n]) % 3;
            const std::size_t first = step * 2 % (orders[n].size() - 2);
            net.forward_backward(std::span(orders[n]).subspan(first, size));
            training.add_shard(size);
        }
        training.synchronize();
        net.step(static_cast<T>(0.1));
    }
    return net.values;
}

template <class T>
bool same_bits(const std::vector<std::vector<T>>& a, const std::vector<std::vector<T>>& b) {
    for (std::size_t p = 0; p < a.size(); ++p) {
        if (std::memcmp(a[p].data(), b[p].data(), a[p].size() * sizeof(T)) != 0) return false;
    }
    return true;
}

}  // namespace

TEST_CASE_TEMPLATE("fifty steps compute the same bits for every number of ranks", T, float, double) {
    for (const std::size_t shards : {8U, 24U}) {
        std::vector<std::vector<T>> alone;
        dptk::launch_threads(1, [&](ProcessGroup& group) { alone = train<T>(group, shards); });
        test::on_ranks([&](ProcessGroup& group) {
            if (shards % static_cast<std::size_t>(group.size()) == 0)
                CHECK(same_bits(train<T>(group, shards), alone));
        });
    }
}

TEST_CASE("the result is the mean over all samples") {
    test::on_ranks([](ProcessGroup& group) {
        const auto shards = static_cast<std::size_t>(2 * group.size());
        std::vector<dptk::bfloat16> value(3), gradient(3);
        dptk::ReproducibleDataParallel training(group, std::tie(value), std::tie(gradient), shards);
        double sum = 0, samples = 0;
        for (std::size_t s = 0; s < shards; ++s) {
            sum += static_cast<double>(s * (s + 1));
            samples += static_cast<double>(s);
        }
        for (const std::size_t s : training.shards()) {
            std::ranges::fill(gradient, dptk::bfloat16(static_cast<float>(s + 1)));
            training.add_shard(s);
        }
        training.synchronize();
        CHECK(static_cast<float>(gradient[2]) == doctest::Approx(sum / samples).epsilon(0.01));
    });
}

TEST_CASE("mistakes are errors of all ranks, and the next step works") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<float> value(3), gradient(3);
        std::string text;
        const auto ranks = static_cast<std::size_t>(group.size());
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { const dptk::ReproducibleDataParallel none(group, value, gradient, 0); },
            test::Agreed::yes));
        CHECK(test::contains(
            text, "invalid number of shards 0: expected at least the number of ranks"));
        dptk::ReproducibleDataParallel training(group, value, gradient, 2 * ranks);
        training.add_shard(1);
        if (group.rank() != group.size() - 1) training.add_shard(1);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { training.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text, "has added 1 of its 2 shards"));
        gradient[0] = 6;
        training.add_shard(1);
        training.add_shard(1);
        CHECK_THROWS_AS(training.add_shard(1), dptk::ArgumentError);
        training.synchronize();
        CHECK(gradient[0] == 6);
    });
}
