// Tests that a Trainer trains models of programs, with the callbacks and checkpoints of dptk's networks.
#include <doctest/doctest.h>
#include <dptk/train/callbacks/average_weights.hpp>
#include <dptk/train/callbacks/class_report.hpp>
#include <dptk/train/callbacks/learning_rate.hpp>
#include <dptk/train/callbacks/misclassified.hpp>
#include <dptk/train/checkpoint/checkpoint.hpp>
#include <dptk/train/trainer.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model.hpp"
#include "support/agreed_errors.hpp"
#include "support/interrupted_run.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

using dptk::ProcessGroup;

/// Softmax regression, with noise in training that depends on the number of the pass, and a buffer.
struct SoftmaxRegression {
    using Scalar = double;

    std::vector<double> weight = std::vector<double>(64 * 10), bias = std::vector<double>(10);
    std::vector<double> weight_gradient = std::vector<double>(64 * 10), bias_gradient = weight_gradient;
    std::vector<double> mean = std::vector<double>(1);
    std::vector<double> inputs, output_gradient;
    dptk::BatchOutputs last;
    std::int64_t pass = 0;

    SoftmaxRegression() { bias_gradient.resize(10); }

    void for_each_parameter(auto& sink) {
        sink("weight", weight, weight_gradient);
        sink("bias", bias, bias_gradient);
    }

    void for_each_buffer(auto&& sink) {
        sink(dptk::nn::NamedBuffer{"mean", {1}, {mean.data(), 1, dptk::DType::f64, {}}});
    }

    void set_training_passes(std::int64_t number) { pass = number; }

    template <class Batch>
    dptk::nn::LossResult forward(const Batch& batch, dptk::nn::Mode mode) {
        const auto& [images, labels] = batch;
        const double noise = mode == dptk::nn::Mode::train ? 0.01 * std::sin(static_cast<double>(pass)) : 0;
        inputs.resize(images.size());
        for (std::size_t i = 0; i < inputs.size(); ++i)
            inputs[i] = static_cast<double>(images.data()[i]) + noise;
        if (mode == dptk::nn::Mode::train) mean[0] = 0.9 * mean[0] + 0.1 * inputs[20];
        dptk::Tensor<double> logits;
        logits.resize(labels.size(), dptk::Shape{10});
        for (std::size_t n = 0; n < labels.size(); ++n)
            for (std::size_t c = 0; c < 10; ++c) {
                double sum = bias[c];
                for (std::size_t i = 0; i < 64; ++i) sum += weight[i * 10 + c] * inputs[n * 64 + i];
                logits.data()[n * 10 + c] = sum;
            }
        dptk::Tensor<double> gradient;
        const dptk::nn::LossResult result = dptk::nn::softmax_cross_entropy(logits, labels, gradient);
        last = {.classes = 10,
                .scores = {logits.data(), logits.data() + logits.size()},
                .labels = {labels.begin(), labels.end()},
                .positions = {}};
        output_gradient.assign(gradient.data(), gradient.data() + gradient.size());
        return result;
    }

    const dptk::BatchOutputs& outputs() const { return last; }

    void backward() {
        std::ranges::fill(weight_gradient, 0);
        std::ranges::fill(bias_gradient, 0);
        for (std::size_t n = 0; n < output_gradient.size() / 10; ++n)
            for (std::size_t c = 0; c < 10; ++c) {
                const double gradient = output_gradient[n * 10 + c];
                bias_gradient[c] += gradient;
                for (std::size_t i = 0; i < 64; ++i)
                    weight_gradient[i * 10 + c] += gradient * inputs[n * 64 + i];
            }
    }
};
static_assert(dptk::TrainableModel<SoftmaxRegression>);

struct Trained {
    dptk::TrainingState state;
    dptk::TrainingStatus status;
};

template <class Dataset>
Trained train(ProcessGroup& group, const Dataset& samples, const std::filesystem::path& folder,
              std::int64_t last_step, dptk::TrainerOptions options) {
    SoftmaxRegression model;
    dptk::Trainer trainer(group, model, options);
    trainer.add(dptk::LearningRate(dptk::CosineSchedule({.total = 3, .final_factor = 0.1})));
    trainer.add(dptk::AverageWeights<double>({.decay = 0.9}));
    if (last_step > 0) trainer.add(test::StopAfter(last_step));
    trainer.add(dptk::Checkpoint(folder));
    Trained result;
    result.status = trainer.fit(samples, samples);
    result.state = trainer.state();
    return result;
}

dptk::TrainerOptions options_of(dptk::OptimizerKind kind) {
    dptk::TrainerOptions options = test::small_options(3);
    options.optimizer = kind;
    options.adam = {.lr = 0.01};
    return options;
}

}  // namespace

TEST_CASE("a model of the program's own is trained, saved and resumed as dptk's networks are") {
    const dptk::ImageDataset images = test::digits("test");
    for (const int ranks : {1, 2, 3}) {
        for (const auto kind : {dptk::OptimizerKind::sgd, dptk::OptimizerKind::adamw}) {
            CAPTURE(ranks);
            const TemporaryFolder folder;
            dptk::TrainerOptions options = options_of(kind);
            options.shard_optimizer = kind == dptk::OptimizerKind::adamw;
            dptk::launch_threads(ranks, [&](ProcessGroup& group) {
                const Trained whole = train(group, images, folder / "whole", 0, options);
                CHECK(whole.status.test.accuracy > 0.6);
                CHECK(whole.state.model.size() == 3);
                CHECK(whole.state.model[2].name == "mean");
                for (const std::int64_t last : {std::int64_t{2}, whole.status.step / 3}) {
                    const auto own = folder / ("stopped-" + std::to_string(last));
                    CHECK(train(group, images, own, last, options).status.step == last);
                    CHECK(test::are_equal(train(group, images, own, 0, options).state, whole.state));
                }
            });
        }
    }
}

TEST_CASE("the ranks' gradients make the step of one process on all samples") {
    // Pairs of a range and a label, a number of samples that leaves ranks without any in the last step.
    const dptk::ImageDataset images = test::digits("test");
    std::vector<std::pair<std::vector<float>, int>> samples;
    for (std::size_t i = 0; i < 49; ++i) {
        const auto pixels = images.pixels().subspan(i * 64, 64);
        samples.emplace_back(std::vector<float>(pixels.begin(), pixels.end()), images.labels()[i]);
        for (float& value : samples.back().first) value /= 16;
    }
    const auto trained = [&](int ranks, std::size_t batch_size) {
        std::vector<double> weight;
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            SoftmaxRegression model;
            dptk::TrainerOptions options = test::small_options(2);
            options.batch_size = batch_size;
            dptk::Trainer trainer(group, model, options);
            const dptk::TrainingStatus status = trainer.fit(samples, samples);
            CHECK(status.training.samples == 49);
            if (group.rank() == 0) weight = model.weight;
        });
        return weight;
    };
    const std::vector<double> one = trained(1, 24), three = trained(3, 8);
    double difference = 0;
    for (std::size_t i = 0; i < one.size(); ++i)
        difference = std::max(difference, std::abs(one[i] - three[i]));
    CHECK(difference < 1e-12);
}

TEST_CASE("callbacks see the outputs, images and gradients of a model of the program's own") {
    struct Norms : dptk::Callback {
        const SoftmaxRegression& model;
        explicit Norms(const SoftmaxRegression& own) : model(own) {}
        [[nodiscard]] bool reads_averages() const override { return true; }
        void step(dptk::TrainingRun& run) override {
            double sum = 0;
            for (const double gradient : model.weight_gradient) sum += gradient * gradient;
            for (const double gradient : model.bias_gradient) sum += gradient * gradient;
            CHECK(run.gradient_norm().value() == doctest::Approx(std::sqrt(sum)));
        }
    };
    const dptk::ImageDataset images = test::digits("test");
    const std::array<std::size_t, 3> shape{1, 8, 8};
    const dptk::ImageDataset one({images.pixels().begin(), images.pixels().begin() + 64}, shape,
                                 {images.labels()[0]}, {.classes = 10});
    for (const int ranks : {1, 2, 3}) {
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            SoftmaxRegression model;
            dptk::Trainer trainer(group, model, test::small_options(1));
            const auto& report = trainer.add(dptk::ClassReport());
            const auto& misclassified = trainer.add(dptk::Misclassified());
            trainer.add(Norms(model));
            const dptk::TrainingStatus status = trainer.fit(images, images);
            CHECK(report.matrix().samples() == images.size());
            CHECK(report.matrix().accuracy() == doctest::Approx(status.test.accuracy));
            if (group.rank() == 0) {
                REQUIRE(misclassified.samples().size() == 16);
                CHECK(misclassified.samples()[0].image.pixels.size() == 64);
            }
            trainer.evaluate(one);  // other ranks have no sample
            CHECK(report.matrix().samples() == 1);
        });
    }
}

TEST_CASE("parameters of a model of the program's own are frozen, and have rates of their own, by pattern") {
    const dptk::ImageDataset images = test::digits("test");
    const auto train = [&](ProcessGroup& group, double factor, bool freezes) {
        SoftmaxRegression model;
        dptk::TrainerOptions options = test::small_options(1);
        if (factor != 1) options.lr_factors = {{"weight", factor}};
        if (freezes) options.freeze = {"b*"};
        dptk::Trainer trainer(group, model, options);
        trainer.train_epoch(images, 0);
        return model;
    };
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const SoftmaxRegression plain = train(group, 1, false), frozen = train(group, 1, true);
        CHECK(plain.bias != std::vector<double>(10));
        CHECK(frozen.bias == std::vector<double>(10));
        CHECK(frozen.weight != std::vector<double>(640));
        CHECK(train(group, 0, false).weight == std::vector<double>(640));
        CHECK(train(group, 0, false).bias != std::vector<double>(10));
    });
}

TEST_CASE("a model that a Trainer cannot train is an error on all ranks") {
    struct Floats : SoftmaxRegression {
        using Scalar = float;
    };
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        std::string message;
        const dptk::TrainerOptions options = test::small_options(1);
        Floats floats;
        CHECK(test::throws<dptk::ArgumentError>(
            message, [&] { dptk::Trainer(group, floats, options); }, test::Agreed::yes));
        CHECK(test::contains(message, "parameter weight is of type f64, expected f32"));
        SoftmaxRegression model;
        dptk::TrainerOptions marked = options, with_graph = options;
        marked.ready = dptk::Ready::marked;
        with_graph.cuda_graph = true;
        CHECK(test::throws<dptk::ArgumentError>(
            message, [&] { dptk::Trainer(group, model, marked); }, test::Agreed::yes));
        CHECK(test::contains(message, "Ready::marked requires a model with a backward(on_ready)"));
        CHECK(test::throws<dptk::ArgumentError>(
            message, [&] { dptk::Trainer(group, model, with_graph); }, test::Agreed::yes));
        CHECK(test::contains(message, "cuda_graph requires a network on a GPU"));
    });
}
