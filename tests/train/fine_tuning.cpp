// Tests a Trainer with frozen parameters, and with learning rates by pattern.
#include <doctest/doctest.h>
#include <dptk/core/detail/name_pattern.hpp>
#include <dptk/train.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/model.hpp"
#include "nn/support.hpp"
#include "support/agreed_errors.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;
using test::Backend;
using FineTuned = dptk::nn::Network<Backend>;
using Samples = std::vector<std::pair<std::vector<float>, int>>;

/// Two convolutions with norms, and a head.
dptk::nn::Graph with_head() {
    using namespace dptk::nn;
    Graph graph({1, 8, 8});
    Value x = graph.conv2d("conv1", graph.input(), {.out_channels = 3, .padding = 1, .bias = false});
    x = graph.relu(graph.batch_norm("bn1", x));
    x = graph.conv2d("conv2", x, {.out_channels = 4, .stride = 2, .padding = 1, .bias = false});
    x = graph.relu(graph.batch_norm("bn2", x));
    graph.linear("fc", graph.flatten(x), {10});
    return graph;
}

Samples some_digits(std::size_t count) {
    const dptk::ImageDataset images = test::digits("train");
    Samples samples;
    for (std::size_t i = 0; i < count; ++i) {
        const auto pixels = images[i].pixels;
        std::vector<float> values;
        for (const std::uint8_t pixel : pixels) values.push_back(static_cast<float>(pixel) / 16);
        samples.emplace_back(std::move(values), static_cast<int>(images[i].label));
    }
    return samples;
}

/// Parameters and running statistics, by name.
std::map<std::string, std::vector<float>> state_of(FineTuned& net) {
    std::map<std::string, std::vector<float>> state;
    std::size_t i = 0;
    net.for_each_parameter(
        [&](const dptk::ParameterRef& parameter) { state[parameter.name] = net.parameter_values(i++); });
    net.for_each_buffer([&](const dptk::nn::NamedBuffer& buffer) {
        if (buffer.data.dtype != dptk::DType::f32) {
            state[buffer.name] = {static_cast<float>(*static_cast<const std::int64_t*>(buffer.data.data))};
            return;
        }
        const auto* const first = static_cast<const float*>(buffer.data.data);
        state[buffer.name] = {first, first + buffer.data.count};
    });
    return state;
}

dptk::TrainerOptions fine_tuning(std::vector<std::string> freeze, std::size_t batch_size = 8) {
    return {.epochs = 2,
            .batch_size = batch_size,
            .sgd = {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01},
            .freeze = std::move(freeze),
            .lr_factors = {{"*", 0.5}, {"fc.*", 2}},
            .workers = 0};
}

/// Trains, with 11 samples: the last step of some ranks has fewer or none.
std::map<std::string, std::vector<float>> fine_tune(ProcessGroup& group, const dptk::TrainerOptions& options,
                                                    const dptk::nn::Graph& graph = with_head()) {
    FineTuned net(graph, 1);
    dptk::Trainer trainer(group, net, options);
    for (int epoch = 0; epoch < options.epochs; ++epoch) trainer.train_epoch(some_digits(11), epoch);
    CHECK(trainer.evaluate(some_digits(11)).loss < 10);
    return state_of(net);
}

std::map<std::string, std::vector<float>> untrained() {
    FineTuned net(with_head(), 1);
    return state_of(net);
}

}  // namespace

TEST_CASE("frozen parameters, and statistics of frozen norms, keep their bits while others train") {
    const auto before = untrained();
    const std::vector<std::string> patterns[] = {
        {"conv1.*", "bn1.*"}, {"conv?.*", "bn*"}, {"bn*"}, {"fc.*", "bn2.*"}, {"bn1.weight"}};
    for (const int ranks : {1, 2, 3}) {
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            for (const auto& freeze : patterns) {
                for (const bool is_synchronized : {false, true}) {
                    dptk::TrainerOptions options = fine_tuning(freeze, 2);
                    options.ready = is_synchronized ? dptk::Ready::marked : dptk::Ready::at_synchronize;
                    if (freeze[0] == "fc.*") options.lr_factors = {{"conv*", 2}};
                    dptk::nn::Graph graph = with_head();
                    if (is_synchronized) graph.synchronize_batch_norms();
                    const auto after = fine_tune(group, options, graph);
                    for (const auto& [name, values] : after) {
                        CAPTURE(name);
                        const bool is_buffer = name.find("running") != std::string::npos ||
                                               name.find("tracked") != std::string::npos;
                        // The statistics change unless weight and bias of the norm are frozen.
                        const std::string own = is_buffer ? name.substr(0, name.find('.')) + ".bias" : name;
                        const bool is_frozen = dptk::detail::any_of(freeze, [&](const std::string& pattern) {
                            return dptk::detail::matches_pattern(own, pattern);
                        });
                        CHECK((values == before.at(name)) == is_frozen);
                    }
                }
            }
        });
    }
}

TEST_CASE("with frozen norms, any number of ranks trains like one") {
    std::map<std::string, std::vector<float>> alone;
    dptk::launch_threads(1, [&](ProcessGroup& group) { alone = fine_tune(group, fine_tuning({"bn*"}, 4)); });
    for (const int ranks : {2, 4}) {
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            const auto each = 4 / static_cast<std::size_t>(group.size());
            const auto trained = fine_tune(group, fine_tuning({"bn*"}, each));
            for (const auto& [name, values] : trained) {
                CAPTURE(name);
                CHECK(dptk::nn::testing::difference(values, alone.at(name)) < 1e-4);
            }
        });
    }
}

TEST_CASE("rates by pattern equal one optimizer for each rate") {
    const Samples samples = some_digits(24);
    for (const dptk::OptimizerKind kind : {dptk::OptimizerKind::sgd, dptk::OptimizerKind::adamw}) {
        dptk::launch_threads(1, [&](ProcessGroup& group) {
            FineTuned net(with_head(), 1), by_hand(with_head(), 1);
            dptk::TrainerOptions options = fine_tuning({"bn*"});
            options.optimizer = kind;
            options.adam = {.lr = 0.01, .weight_decay = 0.1};
            dptk::Trainer trainer(group, net, options);
            const dptk::CosineSchedule schedule({.total = 2});
            trainer.add(dptk::LearningRate(schedule));
            for (int epoch = 0; epoch < 2; ++epoch) trainer.train_epoch(samples, epoch);

            const auto train_by_hand = [&](auto of_body, auto of_head, double lr) {
                by_hand.set_frozen(std::vector<std::size_t>{1, 2, 4, 5});
                std::vector<dptk::ParameterRef> all;
                by_hand.for_each_parameter([&](const dptk::ParameterRef& one) { all.push_back(one); });
                dptk::nn::Tensor<float> gradient;
                for (int epoch = 0; epoch < 2; ++epoch) {
                    dptk::DistributedSampler sampler(samples.size(), group, {.padding = dptk::Padding::none});
                    sampler.set_epoch(epoch);
                    double epochs_done = epoch;
                    for (const auto& batch : dptk::BatchSampler(sampler, 8)) {
                        dptk::nn::Tensor<float> input(dptk::Shape{batch.size(), 1, 8, 8});
                        std::vector<int> labels;
                        for (const std::size_t i : batch) {
                            std::ranges::copy(samples[i].first, input.data() + 64 * labels.size());
                            labels.push_back(samples[i].second);
                        }
                        dptk::nn::softmax_cross_entropy(by_hand.forward(input), labels, gradient);
                        by_hand.backward(gradient);
                        of_body.set_lr(lr * 0.5 * schedule(epochs_done));
                        of_head.set_lr(lr * 2 * schedule(epochs_done));
                        epochs_done += 1.0 / 3;
                        for (const std::size_t i : {0U, 3U})
                            of_body.step(i, all[i].values<float>(), all[i].gradients<float>());
                        for (const std::size_t i : {6U, 7U})
                            of_head.step(i, all[i].values<float>(), all[i].gradients<float>());
                    }
                }
            };
            if (kind == dptk::OptimizerKind::sgd) {
                train_by_hand(dptk::SGD<float>(options.sgd), dptk::SGD<float>(options.sgd), 0.05);
            } else {
                train_by_hand(dptk::AdamW<float>(options.adam), dptk::AdamW<float>(options.adam), 0.01);
            }
            for (const auto& [name, values] : state_of(net)) {
                CAPTURE(name);
                CHECK(dptk::nn::testing::difference(values, state_of(by_hand).at(name)) < 1e-6);
            }
        });
    }
}

TEST_CASE("reproducible shards with frozen parameters give the same bits for every number of ranks") {
    const dptk::nn::Graph graph = dptk::nn::mlp({.input = {1, 8, 8}, .classes = 10});
    dptk::TrainerOptions options = fine_tuning({"*.bias"}, 2);
    options.lr_factors = {};
    options.reproducible_shards = 4;
    FineTuned net(graph, 1);
    const auto before = state_of(net);
    std::map<std::string, std::vector<float>> alone;
    dptk::launch_threads(1, [&](ProcessGroup& group) { alone = fine_tune(group, options, graph); });
    for (const auto& [name, values] : alone) CHECK((values == before.at(name)) == name.ends_with(".bias"));
    dptk::launch_threads(4, [&](ProcessGroup& group) { CHECK(fine_tune(group, options, graph) == alone); });
}

TEST_CASE("all ranks get rank 0's frozen parameters, and the next trainer trains them again") {
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        FineTuned net(with_head(), 1 + static_cast<std::uint64_t>(group.rank()));
        dptk::Trainer trainer(group, net, fine_tuning({"conv1.*"}));
        trainer.train_epoch(some_digits(11), 0);
        CHECK(net.parameter_values(0) == untrained().at("conv1.weight"));
        dptk::Trainer next(group, net, fine_tuning({}));
        next.train_epoch(some_digits(11), 0);
        CHECK(net.parameter_values(0) != untrained().at("conv1.weight"));
    });
}

TEST_CASE("mistakes in patterns are errors on all ranks") {
    dptk::launch_threads(2, [](ProcessGroup& group) {
        FineTuned net(with_head(), 1);
        const auto fails = [&](const std::string& expected, const dptk::TrainerOptions& options) {
            CAPTURE(expected);
            CHECK(test::all_throw<dptk::ArgumentError>(group, expected,
                                                       [&] { dptk::Trainer(group, net, options); }));
        };
        fails("Trainer: freeze: no parameter has a name that matches 'cov1.*'; did you mean conv1.*?",
              {.freeze = {"cov1.*"}});
        fails("Trainer: freeze: no parameter has a name that matches 'fc.wieght'; did you mean fc.weight?",
              {.freeze = {"bn1.*", "fc.wieght"}});
        fails(
            "Trainer: lr_factors: no parameter has a name that matches 'backbone'; the first one is "
            "conv1.weight, the last one fc.bias",
            {.lr_factors = {{"backbone", 2}}});
        fails("freeze: expected a parameter that trains, but the patterns match all 8 parameters",
              {.freeze = {"*"}});
        fails("lr_factors: all parameters that match 'bn1.*' are frozen",
              {.freeze = {"bn*"}, .lr_factors = {{"bn1.*", 2}}});
        fails("lr_factors: expected a finite factor of at least 0 for 'fc.*', got -1",
              {.lr_factors = {{"fc.*", -1}}});
        fails("lr_factors: expected a finite factor of at least 0 for 'fc.*', got ",
              {.lr_factors = {{"fc.*", std::numeric_limits<double>::infinity()}}});
        fails("no parameter has a name that matches 'x'", {.freeze = {group.rank() == 1 ? "x" : "fc.*"}});
        CHECK(test::all_throw<dptk::MismatchError>(
            group, "rank 1 has freeze bn1.*, but rank 0 has freeze bn2.*",
            [&] { dptk::Trainer(group, net, {.freeze = {group.rank() == 1 ? "bn1.*" : "bn2.*"}}); }));
        CHECK(test::all_throw<dptk::MismatchError>(group, "rank 1 has lr_factors fc.*=2", [&] {
            dptk::Trainer(group, net, {.lr_factors = {{"fc.*", 1.0 + group.rank()}}});
        }));
    });
}
