// Epochs that are continued, with the same or another number of ranks.
#include <doctest/doctest.h>
#include <dptk/core/log.hpp>
#include <dptk/data/batch_sampler.hpp>
#include <dptk/data/distributed_sampler.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

namespace {

using dptk::DistributedSampler;
using dptk::DistributedSamplerOptions;
using dptk::Order;
using dptk::Padding;
using dptk::SamplerState;
using Indices = std::vector<std::size_t>;

std::vector<DistributedSampler> samplers_of(std::size_t samples, std::size_t ranks,
                                            const DistributedSamplerOptions& options) {
    std::vector<DistributedSampler> samplers;
    for (std::size_t rank = 0; rank < ranks; ++rank) samplers.emplace_back(samples, ranks, rank, options);
    return samplers;
}

}  // namespace

TEST_CASE("over the epoch, each sample is consumed once, through any changes of the number of ranks") {
    constexpr std::size_t samples = 1003;
    for (const Order order : {Order::torch, Order::computed}) {
        for (const bool shuffle : {true, false}) {
            const DistributedSamplerOptions options{
                .shuffle = shuffle, .seed = 9, .padding = Padding::none, .order = order};
            for (const std::size_t consumed_each : {std::size_t{0}, std::size_t{1}, std::size_t{17}}) {
                Indices consumed;
                SamplerState state{.dataset_size = samples, .options = options, .epoch = 3};
                for (const std::size_t ranks : {5U, 2U, 7U, 4U, 3U}) {
                    std::vector<DistributedSampler> samplers = samplers_of(samples, ranks, options);
                    const bool is_last = ranks == 3;
                    std::vector<SamplerState> states;
                    for (DistributedSampler& sampler : samplers) {
                        sampler.restore(SamplerState::from_text(state.to_text()));
                        const std::size_t most = is_last ? sampler.size() : consumed_each;
                        for (std::size_t i = 0; i < most; ++i) consumed.push_back(sampler[i]);
                        states.push_back(sampler.state(is_last ? sampler.largest_share() : consumed_each));
                    }
                    CHECK(std::ranges::count(states, states[0]) == static_cast<std::ptrdiff_t>(ranks));
                    state = states[0];
                }
                CHECK(state.consumed == samples);
                std::ranges::sort(consumed);
                Indices all(samples);
                std::iota(all.begin(), all.end(), std::size_t{0});
                CHECK(consumed == all);
            }
        }
    }
}

TEST_CASE("with the same number of ranks, a continued epoch has the indices that were left") {
    for (const Padding padding : {Padding::none, Padding::repeat}) {
        for (const bool drop_last : {false, true}) {
            if (drop_last && padding == Padding::none) continue;
            const DistributedSamplerOptions options{.seed = 4, .drop_last = drop_last, .padding = padding};
            for (DistributedSampler& sampler : samplers_of(50, 4, options)) {
                sampler.set_epoch(2);
                const Indices whole(sampler.begin(), sampler.end());
                for (std::size_t done = 0; done <= whole.size(); ++done) {
                    DistributedSampler other(50, 4, sampler.rank(), options);
                    other.restore(sampler.state(done));
                    CHECK(Indices(other.begin(), other.end()) ==
                          Indices(whole.begin() + static_cast<std::ptrdiff_t>(done), whole.end()));
                    CHECK(other.epoch() == 2);
                    other.set_epoch(2);  // the epoch that is under way
                    CHECK(other.size() == whole.size() - done);
                    other.set_epoch(3);
                    CHECK(other.size() == whole.size());
                }
            }
        }
    }
}

TEST_CASE("the state of another sampler, and text that is no state, are errors") {
    DistributedSampler sampler(100, 2, 0, {.seed = 7});
    const auto with = [&](auto&& change) {
        SamplerState state = sampler.state(3);
        change(state);
        return state;
    };
    CHECK_THROWS_WITH_AS(sampler.restore(with([](SamplerState& state) { state.dataset_size = 99; })),
                         "DistributedSampler: the state is that of another sampler: it has dataset_size 99, "
                         "this sampler has 100",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(
        sampler.restore(with([](SamplerState& state) { state.options.seed = 8; })),
        "DistributedSampler: the state is that of another sampler: it has seed 8, this sampler has 7",
        dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(sampler.restore(with([](SamplerState& state) { state.options.shuffle = false; })),
                         doctest::Contains("it has options shuffle=0 seed=7"), dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(sampler.restore(with([](SamplerState& state) { state.consumed = 101; })),
                         doctest::Contains("101 consumed samples, but the dataset has only 100"),
                         dptk::ArgumentError);
    CHECK(sampler.size() == 50);
    const std::string text = sampler.state(3).to_text();
    CHECK(SamplerState::from_text(text) == sampler.state(3));
    for (std::size_t length = 0; length < text.size() - 1; ++length)
        CHECK_THROWS_AS(static_cast<void>(SamplerState::from_text(text.substr(0, length))),
                        dptk::FormatError);
    CHECK_THROWS_AS(static_cast<void>(SamplerState::from_text(text + " more")), dptk::FormatError);
    CHECK_THROWS_AS(static_cast<void>(SamplerState::from_text("dataset_size=-1" + text.substr(16))),
                    dptk::FormatError);
    SamplerState largest{.dataset_size = static_cast<std::size_t>(-1), .epoch = INT64_MIN};
    largest.options = {.seed = UINT64_MAX, .order = Order::computed};
    largest.consumed = largest.dataset_size;
    CHECK(largest.to_text().size() < 200);
    CHECK(SamplerState::from_text(largest.to_text()) == largest);
}

TEST_CASE("a second pass without set_epoch() logs a warning, once") {
    std::vector<std::string> lines;
    dptk::set_log_sink([&](dptk::LogLevel, int, std::string_view line) { lines.emplace_back(line); });
    const auto pass = [](const DistributedSampler& sampler) {
        for (const auto batch : dptk::BatchSampler(sampler, 4)) static_cast<void>(batch);
    };
    DistributedSampler in_order(10, 1, 0, {.shuffle = false}), by_epoch(10, 1, 0), forgetful(10, 1, 0);
    for (int epoch = 0; epoch < 3; ++epoch) {
        by_epoch.set_epoch(epoch);
        pass(by_epoch);
        pass(in_order);
    }
    pass(forgetful);
    CHECK(lines.empty());
    for (int epoch = 0; epoch < 3; ++epoch) pass(forgetful);
    dptk::set_log_sink({});
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("call sampler.set_epoch(epoch)") != std::string::npos);
}
