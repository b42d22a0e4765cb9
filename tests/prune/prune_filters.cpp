#include "dptk/train/callbacks/prune_filters.hpp"

#include <doctest/doctest.h>
#include <dptk/core/error.hpp>
#include <dptk/nn/models.hpp>
#include <dptk/train.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support.hpp"
#include "support/agreed_errors.hpp"
#include "support/ranks.hpp"

using namespace dptk::nn;
using namespace dptk::nn::testing;

namespace {

#ifdef DPTK_WITH_ONEDNN
using Backend = Cpu;
#else
using Backend = Reference<float>;
#endif
using Samples = std::vector<std::pair<std::vector<float>, int>>;

/// Numbers of channels that are no multiples of oneDNN's blocks.
Graph two_convolutions() {
    return sequential({3, 8, 8},
                      {Conv2d{20, 3, 1, 1}, BatchNorm2d{}, ReLU{}, Conv2d{.out_channels = 18, .bias = false},
                       BatchNorm2d{}, ReLU{}, Flatten{}, Linear{4}});
}

Samples samples() {
    Samples all;
    for (std::uint32_t i = 0; i < 40; ++i)
        all.emplace_back(pattern_values<float>(i, 3 * 8 * 8, 4), static_cast<int>(i % 4));
    return all;
}

dptk::TrainerOptions options(int epochs) {
    return {.epochs = epochs,
            .batch_size = 4,
            .sgd = {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-2},
            .seed = 3};
}

std::uint64_t hash_of(dptk::Trainer<dptk::nn::Network<Backend>>& trainer) {
    return dptk::detail::agreed_parameter_hash(trainer.group(), trainer.parameters());
}

/// Notes the state after a step, or continues from one.
struct Continue : dptk::Callback {
    std::int64_t step = 0;
    const dptk::TrainingState* from = nullptr;
    dptk::TrainingState saved = {};

    void train_begin(dptk::TrainingRun& run) override {
        if (from != nullptr) dptk::on_all_or_none(run.group(), [&] { run.restore(*from); });
    }
    void batch_end(dptk::TrainingRun& run) override {
        if (run.status().step == step) saved = run.state();
    }
};

/// After each step, compares the values with what apply_masks() makes of them.
struct CheckMasks : dptk::Callback {
    Network<Backend>& net;
    const dptk::PruneFilters<Backend>& pruning;
    int checked = 0;

    CheckMasks(Network<Backend>& trained, const dptk::PruneFilters<Backend>& callback)
        : net(trained), pruning(callback) {}

    void step(dptk::TrainingRun& run) override {
        CHECK((pruning.plan() != nullptr) == (run.status().epoch >= 1));
        if (pruning.plan() == nullptr) return;
        const dptk::TrainingState before = run.state();
        apply_masks(net, *pruning.plan());
        const dptk::TrainingState masked = run.state();
        for (std::size_t i = 0; i < before.model.size(); ++i) {
            CAPTURE(before.model[i].name);
            CHECK(before.model[i].bytes == masked.model[i].bytes);
        }
        CHECK(net.parameter_values(0).size() == 20 * 27);
        ++checked;
    }
};

}  // namespace

TEST_CASE("ranks prune the same channels, which stay 0 in training with momentum and weight decay") {
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        for (const FilterScore score : {FilterScore::l1, FilterScore::fpgm}) {
            Network<Backend> net(two_convolutions(), 1), pruned(two_convolutions(), 1);
            dptk::Trainer trainer(group, net, options(3));
            const auto& pruning = trainer.add(dptk::PruneFilters(net, {.score = score, .ratio = 0.5}, 1));
            const auto& checks = trainer.add(CheckMasks(net, pruning));
            const Samples all = samples();
            trainer.fit(all, all);
            CHECK(checks.checked == 10);
            REQUIRE(pruning.plan() != nullptr);
            const std::string table = dptk::detail::kept_table(net.graph(), *pruning.plan());
            CHECK(dptk::detail::all_gather_text(group, table) == std::vector<std::string>(2, table));
            std::size_t zeros = 0;
            for (const float value : net.parameter_values(0)) zeros += value == 0 ? 1U : 0U;
            CHECK(zeros == 10 * 27);
            static_cast<void>(hash_of(trainer));  // throws if ranks differ
        }
    });
}

TEST_CASE("masks in the layout of the parameters do what apply_masks() does") {
    Network<Backend> net(two_convolutions(), 1), expected(two_convolutions(), 1);
    const PruningPlan plan = plan_pruning(net, {.ratio = 0.3});
    FilterMasks<Backend> masks(net, plan);
    for (std::size_t i = 0; i < net.parameter_count(); ++i) {
        std::vector<float> values = net.parameter_values(i);
        for (std::size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(k) - 7.5F;
        net.set_parameter_values(i, values);
        expected.set_parameter_values(i, values);
    }
    masks.apply();
    apply_masks(expected, plan);
    for (std::size_t i = 0; i < net.parameter_count(); ++i)
        CHECK(net.parameter_values(i) == expected.parameter_values(i));
    CHECK(masks.plan() == plan);
}

TEST_CASE("masks are applied to values that a trainer has moved") {
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        Network<Backend> net(two_convolutions(), 1), expected(two_convolutions(), 1);
        const PruningPlan plan = plan_pruning(net, {.ratio = 0.3});
        FilterMasks<Backend> masks(net, plan);
        const dptk::Trainer trainer(group, net, options(1));
        const std::vector<float> ones(net.parameter_values(0).size(), 1);
        net.set_parameter_values(0, ones);
        expected.set_parameter_values(0, ones);
        masks.apply();
        apply_masks(expected, plan);
        CHECK(net.parameter_values(0) == expected.parameter_values(0));
        CHECK(net.parameter_values(0) != ones);
    });
}

TEST_CASE("a run continues bit for bit before and after the network is pruned") {
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        const Samples all = samples();
        const auto run = [&](Continue& reads, std::uint64_t seed, double ratio = 0.5) {
            Network<Backend> net(two_convolutions(), seed);
            dptk::Trainer trainer(group, net, options(3));
            const auto& pruning = trainer.add(dptk::PruneFilters(net, {.ratio = ratio}, 1));
            auto& own = trainer.add(reads);
            trainer.fit(all, all);
            reads = own;
            REQUIRE(pruning.plan() != nullptr);
            return std::pair(hash_of(trainer), *pruning.plan());
        };
        for (const std::int64_t step : {3, 7, 12}) {  // epochs have 5 steps
            Continue whole, rest;
            whole.step = step;
            const auto expected = run(whole, 1);
            rest.from = &whole.saved;
            CHECK(run(rest, 2) == expected);
            if (step == 3) continue;
            std::string text;
            CHECK(test::throws<dptk::Error>(text, [&] { run(rest, 2, 0.25); }));
            CHECK(test::contains(text, "it was pruned with l1, ratio 0.5"));
            CHECK(test::contains(text, "this run has l1, ratio 0.25"));
            dptk::TrainingState other = whole.saved;
            for (dptk::StateTensor& tensor : other.training)
                if (tensor.name == "prune.remains") tensor.bytes.resize(16);
            rest.from = &other;
            CHECK(test::throws<dptk::Error>(text, [&] { run(rest, 2); }));
            CHECK(test::contains(text, "masks of 2 channels, the network has "));
        }
    });
}

TEST_CASE("the penalty of Slim changes a step by lr * factor * sign(weight) in batch norms") {
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        const Samples all = samples();
        constexpr float lr = 0.125F, factor = 0.5F;
        const auto values_after = [&](double penalty, int until_epoch) {
            Network<Backend> net(two_convolutions(), 1);
            set_norms(net);
            dptk::Trainer trainer(group, net, {.epochs = 1, .batch_size = 20, .sgd = {.lr = lr}});
            trainer.add(dptk::SlimPenalty(net.graph(), penalty, until_epoch));
            trainer.fit(all, all);
            std::vector<std::vector<float>> values;
            for (std::size_t i = 0; i < net.parameter_count(); ++i) values.push_back(net.parameter_values(i));
            return values;
        };
        const auto without = values_after(0, 1), with = values_after(factor, 1);
        CHECK(values_after(factor, 0) == without);
        Network<Backend> initial(two_convolutions(), 1);
        set_norms(initial);
        const std::vector<ParameterSpec> specs = initial.graph().parameters();
        for (std::size_t i = 0; i < specs.size(); ++i) {
            CAPTURE(specs[i].name);
            const bool is_scale = specs[i].name == "1.weight" || specs[i].name == "4.weight";
            if (!is_scale) {
                CHECK(with[i] == without[i]);
                continue;
            }
            const std::vector<float> before = initial.parameter_values(i);
            for (std::size_t k = 0; k < before.size(); ++k) {
                const float expected = without[i][k] - (before[k] > 0 ? lr * factor : -lr * factor);
                CHECK(with[i][k] == doctest::Approx(expected).epsilon(1e-5));
            }
        }
    });
}

TEST_CASE("mistakes in pruning a trainer's network are errors") {
    Network<Backend> net(two_convolutions(), 1);
    std::string text;
    const auto make = [&](Network<Backend>& network, const PruningOptions& pruning) {
        return test::throws<dptk::ArgumentError>(text, [&] { dptk::PruneFilters(network, pruning); });
    };
    CHECK(make(net, {.ratio = 1}));
    CHECK(test::contains(text, "expected a ratio in [0, 1), found 1"));
    Network<Backend> without(mlp({.input = {1, 4, 4}, .classes = 2}), 1);
    CHECK(make(without, {}));
    CHECK(test::contains(
        text, "expected a graph with channels that may be pruned, found none: there is no Conv2d"));
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { dptk::SlimPenalty(net.graph(), -1); }));
    CHECK(test::contains(text, "SlimPenalty: expected a factor of 0 or above, got -1"));
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        Network<Backend> trained(two_convolutions(), 1);
        dptk::Trainer trainer(group, trained, options(1));
        trainer.add(dptk::PruneFilters(trained, {.ratio = group.rank() == 0 ? 0.5 : 0.25}));
        std::string problem;
        const Samples all = samples();
        CHECK(test::throws<dptk::MismatchError>(
            problem, [&] { trainer.fit(all, all); }, test::Agreed::yes));
        CHECK(test::contains(problem, "the ranks' pruned channels differ: "));
        CHECK(test::contains(problem, "remaining channels of 0: "));
    });
}
