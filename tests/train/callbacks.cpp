// Tests when a Trainer calls callbacks, and the callbacks that come with it.
#include <doctest/doctest.h>
#include <dptk/train.hpp>

#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/model.hpp"
#include "support/agreed_errors.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::TrainingRun;
using test::Backend;

/// Notes the calls, one letter each.
struct Calls : dptk::Callback {
    std::string calls;
    std::vector<double> rates;

    void train_begin(TrainingRun&) override { calls += '('; }
    void epoch_begin(TrainingRun&) override { calls += '['; }
    void batch_begin(TrainingRun&) override { calls += 'b'; }
    void gradients(TrainingRun&) override { calls += 'g'; }
    void step(TrainingRun& run) override {
        calls += 's';
        rates.push_back(run.lr());
    }
    void train_summary(TrainingRun& run) override {
        calls += 't';
        CHECK(run.status().training.loss > 0);
    }
    void batch_end(TrainingRun&) override { calls += 'e'; }
    void test_begin(TrainingRun&) override { calls += '{'; }
    void test_batch(TrainingRun&) override { calls += '.'; }
    void test_summary(TrainingRun& run) override {
        calls += '=';
        CHECK(run.status().test.samples > 0);
    }
    void test_end(TrainingRun&) override { calls += '}'; }
    void epoch_end(TrainingRun&) override { calls += ']'; }
    void train_end(TrainingRun&) override { calls += ')'; }
};

static_assert(dptk::detail::overrides_gradients<Calls>);
static_assert(!dptk::detail::overrides_gradients<dptk::StopOnSignal>);

/// The first `count` samples.
dptk::ImageDataset few(std::size_t count) {
    const dptk::ImageDataset all = test::digits("train");
    const auto end = static_cast<std::ptrdiff_t>(count);
    const std::vector<std::size_t> shape{count, 1, 8, 8};
    return {{all.pixels().begin(), all.pixels().begin() + 64 * end},
            shape,
            {all.labels().begin(), all.labels().begin() + end},
            {.classes = 10}};
}

std::string read(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("callbacks are called in the documented order, on all ranks") {
    dptk::launch_threads(2, [](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, test::small_options(2));
        const auto& calls = trainer.add(Calls());
        const dptk::ImageDataset samples = few(50);  // steps of 2 x 16 and 2 x 9 samples
        const dptk::TrainingStatus status = trainer.fit(samples, samples);
        CHECK(calls.calls == "([bgstebgste{..=}][bgstebgste{..=}])");
        CHECK(status.step == 4);
        CHECK(status.training.samples == 50);
        CHECK(status.samples_per_second > 0);
    });
}

TEST_CASE("a trainer that a callback has stopped trains whole epochs again") {
    struct StopOnce : dptk::Callback {
        bool has_stopped = false;
        void batch_end(TrainingRun& run) override {
            if (!has_stopped) run.stop("enough");
            has_stopped = true;
        }
    };
    dptk::launch_threads(2, [](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, test::small_options(2));
        trainer.add(StopOnce());
        const dptk::ImageDataset samples = few(100);
        CHECK(trainer.fit(samples, samples).step == 1);
        CHECK(trainer.train_epoch(samples, 1).samples == 100);
        CHECK(trainer.fit(samples, samples).epoch == 2);
    });
}

TEST_CASE("the learning rate follows the schedule by step, or by epoch") {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        for (const bool by_epoch : {false, true}) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::TrainerOptions options = test::small_options(2);
            options.optimizer = dptk::OptimizerKind::adam;
            options.adam.lr = 0.5;
            dptk::Trainer trainer(group, net, options);
            trainer.add(dptk::LearningRate([](double epochs) { return 1 - epochs / 4; }, by_epoch));
            const auto& calls = trainer.add(Calls());
            const dptk::ImageDataset samples = few(32);
            trainer.fit(samples, samples);
            CHECK(calls.rates == (by_epoch ? std::vector<double>{0.5, 0.5, 0.375, 0.375}
                                           : std::vector<double>{0.5, 0.4375, 0.375, 0.3125}));
        }
    });
}

TEST_CASE("a warm-up by step begins with the rate of one step, and ends with the whole rate") {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        for (const bool by_epoch : {false, true}) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::TrainerOptions options = test::small_options(2);
            options.sgd.lr = 0.5;
            dptk::Trainer trainer(group, net, options);
            trainer.add(
                dptk::LearningRate(dptk::ConstantSchedule({.warmup = by_epoch ? 2.0 : 1.0}), by_epoch));
            const auto& calls = trainer.add(Calls());
            const dptk::ImageDataset samples = few(64);  // 4 steps
            trainer.fit(samples, samples);
            CHECK(calls.rates == (by_epoch
                                      ? std::vector<double>{0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5}
                                      : std::vector<double>{0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.5, 0.5}));
        }
    });
}

TEST_CASE("an evaluation after a run that was stopped can be stopped as well") {
    struct StopInTest : dptk::Callback {
        std::string calls;
        bool stops = true;
        void batch_end(TrainingRun& run) override { run.stop("enough"); }
        void test_batch(TrainingRun& run) override {
            calls += '.';
            if (stops) run.stop("a signal");
        }
        void test_summary(TrainingRun&) override { calls += '='; }
    };
    dptk::launch_threads(2, [](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, test::small_options(2));
        auto& callback = trainer.add(StopInTest());
        const dptk::ImageDataset samples = few(100);  // 4 batches
        CHECK(trainer.fit(samples, samples).stop_reason == "enough");
        trainer.evaluate(samples);
        CHECK(callback.calls == ".");
        CHECK(trainer.status().stop_reason == "a signal");
        callback.stops = false;
        CHECK(trainer.evaluate(samples).samples == 100);
        CHECK(callback.calls == ".....=");
        CHECK(trainer.status().stop_reason == "a signal");
    });
}

TEST_CASE("the averages of the parameters are evaluated, and the parameters remain") {
    dptk::launch_threads(2, [](ProcessGroup& group) {
        const dptk::ImageDataset samples = few(64);
        const auto train = [&](double decay) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer trainer(group, net, test::small_options(3));
            if (decay >= 0) trainer.add(dptk::AverageWeights<>({.decay = decay}));
            const dptk::TrainingStatus status = trainer.fit(samples, samples);
            return std::pair(status, dptk::detail::agreed_parameter_hash(group, trainer.parameters()));
        };
        const auto [plain, hash] = train(-1);
        const auto [newest, newest_hash] = train(0);  // the averages are the last values
        const auto [first, first_hash] = train(1);    // the averages are the values after the first step
        CHECK(newest.test.loss == plain.test.loss);
        CHECK(first.test.loss > plain.test.loss);
        CHECK(newest_hash == hash);
        CHECK(first_hash == hash);
    });
}

TEST_CASE("logs have a line for each epoch, also if a run continues") {
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const dptk::ImageDataset samples = few(40);
        for (const std::string name : {"log.csv", "log.jsonl"}) {
            CAPTURE(name);
            for (const int epochs : {3, 2}) {  // the second run starts from the beginning
                dptk::nn::Network<Backend> net = test::small_convnet();
                dptk::Trainer trainer(group, net, test::small_options(epochs));
                trainer.add(dptk::MetricsLog((folder / name).string()));
                trainer.fit(samples, samples);
            }
            group.barrier();
            const std::string text = read(folder / name);
            const bool is_csv = name == "log.csv";
            CHECK(std::ranges::count(text, '\n') == (is_csv ? 3 : 2));
            CHECK(text.starts_with(is_csv ? "epoch,step,lr,train_loss,train_accuracy,test_loss,test_accuracy,"
                                            "samples_per_second\n1,2,0.05,"
                                          : "{\"epoch\": 1, \"step\": 2, \"lr\": 0.05, \"train_loss\": "));
        }
        const std::vector<std::pair<std::vector<float>, int>> not_finite = {
            {std::vector<float>(64, std::numeric_limits<float>::quiet_NaN()), 1}};
        for (const std::string name : {"nan.csv", "nan.jsonl"}) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer trainer(group, net, test::small_options(1));
            trainer.add(dptk::MetricsLog((folder / name).string()));
            trainer.fit(samples, not_finite);
            group.barrier();
            const std::string text = read(folder / name);
            CHECK(test::contains(
                text, name == "nan.csv" ? "nan,0," : "\"test_loss\": null, \"test_accuracy\": 0, "));
        }
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, test::small_options(1));
        trainer.add(dptk::MetricsLog((folder / "missing/log.csv").string()));
        std::string message;
        CHECK(test::throws<dptk::Error>(
            message, [&] { trainer.fit(samples, samples); }, test::Agreed::yes));
        CHECK(test::contains(message, "missing/log.csv: cannot be written: No such file or directory"));
    });
}
