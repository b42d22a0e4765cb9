// Tests what callbacks watch in models that report no accuracy, and that each run begins with new states.
#include <doctest/doctest.h>
#include <dptk/train/callbacks/average_weights.hpp>
#include <dptk/train/callbacks/early_stopping.hpp>
#include <dptk/train/callbacks/html_report.hpp>
#include <dptk/train/callbacks/metrics_log.hpp>
#include <dptk/train/callbacks/tensorboard.hpp>
#include <dptk/train/checkpoint/checkpoint.hpp>
#include <dptk/train/trainer.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/agreed_errors.hpp"
#include "support/interrupted_run.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

using dptk::ProcessGroup;
using Points = std::vector<std::pair<float, float>>;

/// y = weight · x, without an accuracy.
struct Line {
    std::vector<float> weight = {0}, gradient = {0};
    float slope = 0;
    int passes = 0;

    void for_each_parameter(auto& sink) { sink("weight", weight, gradient); }

    dptk::nn::LossResult forward(const std::tuple<std::vector<float>, std::vector<float>>& batch,
                                 dptk::nn::Mode mode) {
        const auto& [x, y] = batch;
        double loss = 0;
        slope = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float error = weight[0] * x[i] - y[i];
            loss += static_cast<double>(error * error);
            slope += 2 * error * x[i] / static_cast<float>(x.size());
        }
        if (mode == dptk::nn::Mode::train) ++passes;
        return {.loss = loss / static_cast<double>(x.size())};
    }

    void backward() { gradient[0] = slope; }
};

const Points points = {{1, 3}, {2, 6}, {0, 0}, {-1, -3}};

/// A step for each epoch, in each of which the loss falls.
dptk::TrainerOptions options_of(int epochs) {
    return {.epochs = epochs, .batch_size = 4, .sgd = {.lr = 0.01, .momentum = 0}};
}

std::string read(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

}  // namespace

TEST_CASE("the loss of a model that reports no accuracy is watched") {
    for (const int ranks : {1, 2}) {
        const TemporaryFolder folder;
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            Line model;
            dptk::Trainer trainer(group, model, options_of(6));
            trainer.add(dptk::EarlyStopping({.patience = 2}));
            trainer.add(dptk::MetricsLog((folder / "log.jsonl").string()));
            trainer.add(dptk::HtmlReport(folder / "report.html"));
            trainer.add(dptk::Checkpoint(folder / "run"));
            const dptk::TrainingStatus status = trainer.fit(points, points);
            CHECK(status.epoch == 6);
            CHECK(std::isnan(status.training.accuracy));
            CHECK(std::isnan(status.test.accuracy));
            const dptk::TrainingState best = dptk::CheckpointFolder::load(folder / "run" / "best");
            CHECK(best.number("trainer.step") == status.step);
            if (group.rank() != 0) return;
            CHECK(count(read(folder / "log.jsonl"), "\"test_accuracy\": null") == 6);
            CHECK(count(read(folder / "report.html"), "<tr class=\"best\"><th scope=\"row\">6</th>") == 1);
        });
    }
}

TEST_CASE("a run that continues keeps watching the loss") {
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        for (const std::int64_t last_step : {2, 0}) {
            Line model;
            dptk::TrainerOptions options = options_of(6);
            options.sgd.lr = last_step == 0 ? 1e-9 : 0.01;  // the loss hardly falls after it was continued
            dptk::Trainer trainer(group, model, options);
            trainer.add(dptk::EarlyStopping({.patience = 2, .min_delta = 0.01}));
            if (last_step > 0) trainer.add(test::StopAfter(last_step));
            trainer.add(dptk::Checkpoint(folder / "run"));
            const dptk::TrainingStatus status = trainer.fit(points, points);
            if (last_step > 0) continue;
            CHECK(status.stop_reason == "no better loss in 2 epochs");
            CHECK(status.epoch < 6);
        }
    });
}

TEST_CASE("a monitor that is never reported is an error on all ranks after the first epoch") {
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const auto check = [&](const std::string& part, const Points& tested, auto callback) {
            Line model;
            dptk::Trainer trainer(group, model, options_of(3));
            trainer.add(std::move(callback));
            CHECK(test::all_throw<dptk::ArgumentError>(group, part, [&] { trainer.fit(points, tested); }));
            CHECK(model.passes == 1);
        };
        using dptk::Monitor;
        check("EarlyStopping: the model reports no accuracy", points,
              dptk::EarlyStopping({.monitor = Monitor::accuracy}));
        check("EarlyStopping: expected an evaluation", {}, dptk::EarlyStopping());
        check("Checkpoint: the model reports no accuracy", points,
              dptk::Checkpoint(folder / "a", {.monitor = Monitor::accuracy}));
        check("Checkpoint: expected an evaluation", {},
              dptk::Checkpoint(folder / "b", {.monitor = Monitor::loss}));

        Line model;
        dptk::Trainer trainer(group, model, options_of(3));
        trainer.add(dptk::Checkpoint(folder / "c"));
        CHECK(trainer.fit(points, Points()).epoch == 3);
        CHECK(!std::filesystem::exists(folder / "c" / "best"));
    });
}

TEST_CASE("each run of a trainer begins with new states of its callbacks") {
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        Line model;
        dptk::TrainerOptions options = options_of(20);
        options.sgd.lr = 0.2;  // converges soon
        dptk::Trainer trainer(group, model, options);
        trainer.add(dptk::EarlyStopping({.monitor = dptk::Monitor::loss, .patience = 2, .min_delta = 0.01}));
        trainer.add(dptk::AverageWeights({.decay = 0.5}));
        trainer.add(dptk::MetricsLog((folder / "log.csv").string()));
        trainer.add(dptk::HtmlReport(folder / "report.html"));
        trainer.add(dptk::TensorBoard((folder / "events").string()));
        trainer.add(dptk::Checkpoint(folder / "run", {.monitor = dptk::Monitor::loss}));
        std::vector<std::string> logs;
        std::vector<dptk::TrainingState> best;
        for (int run = 0; run < 2; ++run) {
            model.weight[0] = 0;
            const dptk::TrainingStatus status = trainer.fit(points, points);
            CHECK(status.stop_reason == "no better loss in 2 epochs");
            REQUIRE(std::filesystem::exists(folder / "run" / "best"));
            best.push_back(dptk::CheckpointFolder::load(folder / "run" / "best"));
            group.barrier();
            if (group.rank() == 0) {
                logs.push_back(read(folder / "log.csv"));
                CHECK(count(read(folder / "report.html"), "<title>epoch 1, training:") > 0);
                std::filesystem::remove_all(folder / "run");
            }
            group.barrier();
        }
        for (const char* name : {"ema.weight", "checkpoint.best"})
            CHECK(dptk::TrainingState::required(best[0].training, name).bytes ==
                  dptk::TrainingState::required(best[1].training, name).bytes);
        if (group.rank() != 0) return;
        CHECK(count(logs[0], "\n") == count(logs[1], "\n"));
        CHECK(count(read(folder / "report.html"), "<title>epoch 1, training:") == 1);
        const std::filesystem::directory_iterator events(folder / "events");
        CHECK(std::distance(begin(events), end(events)) == 2);
    });
}
