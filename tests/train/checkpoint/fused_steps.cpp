// Tests that a Trainer's fused steps compute the same bits as plain ones, and that runs of either kind
// continue as the other.
#include <doctest/doctest.h>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/train/checkpoint/checkpoint.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"
#include "support/interrupted_run.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

using dptk::FusedStep;
using dptk::ProcessGroup;
using test::Backend;
using Network = dptk::nn::Network<Backend>;

/// Options with all that a step may have to regard.
dptk::TrainerOptions options_of_steps(dptk::OptimizerKind kind) {
    dptk::TrainerOptions options = test::small_options(2);
    options.optimizer = kind;
    options.adam.lr = 0.02;
    options.lr_factors = {{"5.bias", 3}};
    if (kind == dptk::OptimizerKind::sgd) {
        options.sgd.nesterov = true;
        options.sgd.weight_decay = 1e-3;
    } else {
        options.freeze = {"1.*"};
        options.accumulate = 2;
        options.batch_size = 7;
    }
    return options;
}

/// Trains, or continues, with a checkpoint in `folder`; ends early after `last_step` steps, if it is not 0.
dptk::TrainingState train_in_steps(ProcessGroup& group, const std::filesystem::path& folder,
                                   std::int64_t last_step, dptk::TrainerOptions options,
                                   FusedStep fused_step) {
    options.fused_step = fused_step;
    Network net = test::small_convnet();
    dptk::Trainer trainer(group, net, options);
    CHECK(trainer.has_fused_steps() ==
          (fused_step == FusedStep::yes || (fused_step == FusedStep::automatic && group.size() > 1)));
    test::add_callbacks(trainer, options.epochs);
    if (last_step > 0) trainer.add(test::StopAfter(last_step));
    trainer.add(dptk::Checkpoint(folder));
    trainer.fit(test::digits("train"), test::digits("test"));
    return trainer.state();
}

/// Reads averages from the second epoch on.
struct ReadsAverages : dptk::Callback {
    double sum = 0;

    [[nodiscard]] bool reads_averages() const override { return true; }
    void step(dptk::TrainingRun& run) override {
        for (const dptk::ParameterRef& parameter : run.parameters())
            for (const float element : parameter.gradients<float>()) sum += element * element;
    }
};

/// Registers one value twice, with separate gradients.
struct TwoGradients {
    std::vector<float> weight = {1, 2}, first = {0, 0}, second = {0, 0};

    void for_each_parameter(auto& sink) {
        sink("first", weight, first);
        sink("second", weight, second);
    }
    template <class Batch>
    dptk::nn::LossResult forward(const Batch& /*batch*/, dptk::nn::Mode /*mode*/) {
        return {.loss = 1, .correct = 0};
    }
    void backward() { first = second = {1, 1}; }
};

}  // namespace

TEST_CASE("fused and plain steps train the same bits, and continue each other's checkpoints") {
    for (const dptk::OptimizerKind kind : {dptk::OptimizerKind::sgd, dptk::OptimizerKind::adamw}) {
        const dptk::TrainerOptions options = options_of_steps(kind);
        for (const int ranks : {1, 2, 3}) {
            CAPTURE(ranks);
            const TemporaryFolder folder;
            dptk::launch_threads(ranks, [&](ProcessGroup& group) {
                const auto plain = train_in_steps(group, folder / "plain", 0, options, FusedStep::no);
                for (const FusedStep way : {FusedStep::automatic, FusedStep::yes})
                    CHECK(
                        test::are_equal(train_in_steps(group, folder / std::to_string(static_cast<int>(way)),
                                                       0, options, way),
                                        plain));
                for (const bool was_fused : {false, true}) {
                    const auto own = folder / (was_fused ? "was-fused" : "was-plain");
                    const FusedStep ways[] = {FusedStep::no, FusedStep::automatic};
                    train_in_steps(group, own, 17, options, ways[was_fused ? 1 : 0]);
                    CHECK(test::are_equal(train_in_steps(group, own, 0, options, ways[was_fused ? 0 : 1]),
                                          plain));
                }
            });
        }
    }
}

TEST_CASE("a callback that reads averages ends fused steps, and the run continues with the same bits") {
    const dptk::ImageDataset samples = test::digits("test");
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const auto train = [&](FusedStep fused_step) {
            Network net = test::small_convnet();
            dptk::TrainerOptions options = options_of_steps(dptk::OptimizerKind::sgd);
            options.fused_step = fused_step;
            dptk::Trainer trainer(group, net, options);
            trainer.train_epoch(samples, 0);
            CHECK(trainer.has_fused_steps() == (fused_step == FusedStep::automatic));
            trainer.set_lr(0.01);
            ReadsAverages& reads = trainer.add(ReadsAverages());
            trainer.train_epoch(samples, 1);
            CHECK_FALSE(trainer.has_fused_steps());
            CHECK(reads.sum == group.all_reduce_value(reads.sum, dptk::ReduceOp::max));
            return trainer.state();
        };
        CHECK(test::are_equal(train(FusedStep::automatic), train(FusedStep::no)));
    });
}

TEST_CASE("a network keeps its values after the end of a trainer with fused steps, and is trained again") {
    const dptk::ImageDataset samples = test::digits("test");
    std::vector<std::vector<float>> results;
    for (const FusedStep fused_step : {FusedStep::no, FusedStep::automatic}) {
        Network net = test::small_convnet();
        dptk::launch_threads(2, [&](ProcessGroup& group) {
            Network own = test::small_convnet();
            Network& trained = group.rank() == 0 ? net : own;
            for (int run = 0; run < 2; ++run) {
                dptk::TrainerOptions options = options_of_steps(dptk::OptimizerKind::sgd);
                options.fused_step = fused_step;
                dptk::Trainer trainer(group, trained, options);
                trainer.train_epoch(samples, 0);
            }
        });
        std::vector<float>& result = results.emplace_back();
        for (std::size_t i = 0; i < net.parameter_count(); ++i) {
            const std::vector<float> values = net.parameter_values(i);
            result.insert(result.end(), values.begin(), values.end());
        }
    }
    CHECK(results[0] == results[1]);
}

TEST_CASE("the norm of the averaged gradients is that of plain steps") {
    struct Norms : dptk::Callback {
        std::vector<double> norms;
        void step(dptk::TrainingRun& run) override { norms.push_back(run.gradient_norm().value()); }
    };
    const dptk::ImageDataset samples = test::digits("test");
    dptk::launch_threads(3, [&](ProcessGroup& group) {
        std::vector<std::vector<double>> norms;
        for (const FusedStep fused_step : {FusedStep::no, FusedStep::automatic}) {
            Network net = test::small_convnet();
            dptk::TrainerOptions options = options_of_steps(dptk::OptimizerKind::sgd);
            options.fused_step = fused_step;
            dptk::Trainer trainer(group, net, options);
            Norms& callback = trainer.add(Norms());
            trainer.train_epoch(samples, 0);
            norms.push_back(callback.norms);
        }
        REQUIRE(norms[0].size() == norms[1].size());
        for (std::size_t i = 0; i < norms[0].size(); ++i)
            CHECK(norms[1][i] == doctest::Approx(norms[0][i]).epsilon(1e-9));
    });
}

TEST_CASE("a model that ties values, but not gradients, is trained by plain steps") {
    const std::vector<std::pair<std::vector<float>, int>> samples(8, {{1, 2}, 0});
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        TwoGradients model;
        dptk::Trainer trainer(group, model, test::small_options(1));
        CHECK_FALSE(trainer.has_fused_steps());
        trainer.train_epoch(samples, 0);
        CHECK(model.weight[0] < 1);
    });
}

TEST_CASE("hooks and marks that only some ranks have are an error on all ranks") {
    dptk::launch_threads(2, [](ProcessGroup& group) {
        Network net = test::small_convnet();
        dptk::TrainerOptions hooked = test::small_options(1), marked = hooked;
        if (group.rank() == 1) hooked.comm_hook = dptk::hooks::fp16_compress();
        if (group.rank() == 1) marked.ready = dptk::Ready::marked;
        std::string message;
        for (const dptk::TrainerOptions& options : {hooked, marked}) {
            CHECK(test::throws<dptk::MismatchError>(
                message, [&] { const dptk::Trainer trainer(group, net, options); }, test::Agreed::yes));
            CHECK(test::contains(message, "rank 1 has"));
        }
    });
}

TEST_CASE("what excludes fused steps is an error on all ranks where they are required") {
    dptk::launch_threads(2, [](ProcessGroup& group) {
        Network net = test::small_convnet();
        dptk::TrainerOptions options = test::small_options(1);
        options.fused_step = FusedStep::yes;
        options.reproducible_shards = 2;
        std::string message;
        CHECK(test::throws<dptk::ArgumentError>(
            message, [&] { const dptk::Trainer trainer(group, net, options); }, test::Agreed::yes));
        CHECK(test::contains(message, "Trainer: fused_step and reproducible_shards cannot be combined"));
        options.reproducible_shards = 0;
        dptk::Trainer trainer(group, net, options);
        CHECK_THROWS_WITH_AS(trainer.add(ReadsAverages()),
                             "Trainer: a callback with reads_averages() cannot be combined with fused_step",
                             dptk::ArgumentError);
        options.fused_step = group.rank() == 0 ? FusedStep::yes : FusedStep::no;
        CHECK(test::throws<dptk::MismatchError>(
            message, [&] { const dptk::Trainer other(group, net, options); }, test::Agreed::yes));
        CHECK(test::contains(message, "fused_step no"));
    });
}
