// Tests that a Trainer trains libtorch modules, with checkpoints from which runs continue.
#include "libtorch/doctest_and_torch.hpp"

#include <dptk/adapters/libtorch_train.hpp>
#include <dptk/train/callbacks/average_weights.hpp>
#include <dptk/train/callbacks/class_report.hpp>
#include <dptk/train/callbacks/learning_rate.hpp>
#include <dptk/train/checkpoint/checkpoint.hpp>
#include <dptk/train/trainer.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/interrupted_run.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

/// Fully connected layers with batch norm, dropout, and a layer that is not trained.
struct Classifier : torch::nn::Module {
    torch::nn::Linear frozen = register_module("frozen", torch::nn::Linear(6, 8));
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
    torch::nn::Dropout dropout;
    torch::nn::Linear last = register_module("last", torch::nn::Linear(8, 3));

    explicit Classifier(double p) : dropout(register_module("dropout", torch::nn::Dropout(p))) {
        const torch::NoGradGuard no_grad;
        double seed = 1;
        for (torch::Tensor& parameter : parameters()) {
            auto* element = parameter.data_ptr<float>();
            for (std::int64_t i = 0; i < parameter.numel(); ++i)
                element[i] = static_cast<float>(0.4 * std::sin(seed += 1.3));
        }
        for (torch::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    }

    torch::Tensor forward(const torch::Tensor& x) { return last(dropout(torch::relu(norm(frozen(x))))); }
};

std::vector<std::pair<std::vector<float>, int>> samples(std::size_t count) {
    std::vector<std::pair<std::vector<float>, int>> all;
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<float> values(6);
        for (std::size_t k = 0; k < 6; ++k) values[k] = std::sin(static_cast<float>(i * 7 + k * k));
        all.emplace_back(values, values[0] > 0.3F ? 2 : values[1] > 0 ? 1 : 0);
    }
    return all;
}

struct Trained {
    dptk::TrainingState state;
    dptk::TrainingStatus status;
};

Trained train(dptk::ProcessGroup& group, double dropout, const std::filesystem::path& folder,
              std::int64_t last_step) {
    Classifier module(dropout);
    dptk::libtorch::TrainableModule model(module);
    dptk::TrainerOptions options{.epochs = 4, .batch_size = 8, .sgd = {.lr = 0.1, .momentum = 0.9}};
    options.workers = 0;
    dptk::Trainer trainer(group, model, options);
    trainer.add(dptk::LearningRate(dptk::CosineSchedule({.total = 4, .warmup = 1})));
    trainer.add(dptk::AverageWeights<>({.decay = 0.9}));
    if (last_step > 0) trainer.add(test::StopAfter(last_step));
    const auto& report = trainer.add(dptk::ClassReport());
    trainer.add(dptk::Checkpoint(folder));
    Trained result;
    result.status = trainer.fit(samples(100), samples(40));
    CHECK(report.matrix().accuracy() == doctest::Approx(result.status.test.accuracy));
    CHECK(trainer.gradient_norm().value_or(0) > 0);
    result.state = trainer.state();
    return result;
}

}  // namespace

TEST_CASE("a Trainer of a module continues bit for bit") {
    for (const int ranks : {1, 2}) {
        CAPTURE(ranks);
        const double dropout = ranks == 1 ? 0.3 : 0;  // ranks that are threads share libtorch's generator
        const TemporaryFolder folder;
        dptk::launch_threads(ranks, [&](dptk::ProcessGroup& group) {
            const Trained whole = train(group, dropout, folder / "whole", 0);
            CHECK(whole.status.test.accuracy > 0.6);
            CHECK(whole.status.test.samples == 40);
            std::vector<std::string> names;
            for (const dptk::StateTensor& tensor : whole.state.model) names.push_back(tensor.name);
            CHECK(names == std::vector<std::string>{"frozen.weight", "frozen.bias", "norm.weight",
                                                    "norm.bias", "last.weight", "last.bias",
                                                    "norm.running_mean", "norm.running_var",
                                                    "norm.num_batches_tracked"});
            for (const std::int64_t last : {std::int64_t{3}, whole.status.step / 4}) {
                const auto own = folder / ("stopped-" + std::to_string(last));
                CHECK(train(group, dropout, own, last).status.step == last);
                CHECK(test::are_equal(train(group, dropout, own, 0).state, whole.state));
            }
        });
    }
}

TEST_CASE("a Trainer makes the steps of libtorch's optimizer and loop") {
    const auto data = samples(48);
    Classifier expected(0);
    torch::optim::SGD optimizer(expected.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    dptk::launch_threads(1, [&](dptk::ProcessGroup& group) {
        const dptk::DistributedSampler order(data.size(), group, {.padding = dptk::Padding::none});
        for (std::size_t first = 0; first < 48; first += 8) {
            torch::Tensor x = torch::empty({8, 6});
            torch::Tensor y = torch::empty({8}, torch::kInt64);
            for (std::size_t n = 0; n < 8; ++n) {
                const auto& [values, label] = data[order[first + n]];
                for (std::size_t k = 0; k < 6; ++k) x.data_ptr<float>()[n * 6 + k] = values[k];
                y.data_ptr<std::int64_t>()[n] = label;
            }
            optimizer.zero_grad();
            torch::cross_entropy_loss(expected.forward(x), y).backward();
            optimizer.step();
        }
        Classifier module(0);
        dptk::libtorch::TrainableModule model(module);
        dptk::Trainer trainer(group, model,
                              {.epochs = 1, .batch_size = 8, .sgd = {.lr = 0.1, .momentum = 0.9}});
        trainer.train_epoch(data, 0);
        const auto parameters = module.parameters(), others = expected.parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i)
            CHECK(torch::allclose(parameters[i], others[i], 1e-5, 1e-6));
    });
}

TEST_CASE("a Trainer of a module with another loss and targets that are no integers") {
    std::vector<std::pair<std::vector<float>, std::vector<float>>> data;
    for (const auto& [values, label] : samples(64)) data.emplace_back(values, std::vector{2 * values[0]});
    struct Line : torch::nn::Module {
        torch::nn::Linear fc = register_module("fc", torch::nn::Linear(6, 1));
        torch::Tensor forward(const torch::Tensor& x) { return fc(x); }
    };
    dptk::launch_threads(2, [&](dptk::ProcessGroup& group) {
        Line module;
        dptk::libtorch::TrainableModule model(module,
                                              [](const torch::Tensor& output, const torch::Tensor& target) {
                                                  return torch::mse_loss(output, target);
                                              });
        dptk::Trainer trainer(group, model, {.epochs = 20, .batch_size = 4, .sgd = {.lr = 0.2}});
        const dptk::TrainingStatus status = trainer.fit(data, data);
        CHECK(status.test.loss < 0.01);
        CHECK(std::isnan(status.test.accuracy));
    });
}

TEST_CASE("options that a Trainer of a module does not support are errors on all ranks") {
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        Classifier module(0);
        dptk::libtorch::TrainableModule model(module);
        const auto refuses = [&](const char* option, const dptk::TrainerOptions& options) {
            std::string text;
            CHECK(test::throws<dptk::ArgumentError>(
                text, [&] { dptk::Trainer(group, model, options); }, test::Agreed::yes));
            CHECK(test::contains(text, std::string("Trainer: ") + option));
        };
        refuses("shard_optimizer and a model", {.shard_optimizer = true});
        refuses("reproducible_shards and a model", {.reproducible_shards = 2});
        refuses("accumulate and a model", {.accumulate = 2});
        refuses("freeze and a model", {.freeze = {"last.*"}});
        refuses("cuda_graph requires", {.cuda_graph = true});
        refuses("data_on_device requires", {.data_on_device = true});
    });
}
