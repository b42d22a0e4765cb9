// The Trainer on a real GPU, with the data set of digits that ships with dptk.
#include <doctest/doctest.h>
#include <dptk/data/readers/idx_images.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/hooks/powersgd.hpp>
#include <dptk/train.hpp>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "support/ranks.hpp"

using dptk::ProcessGroup;
using dptk::nn::Cuda;
using dptk::nn::Precision;
using Net = dptk::nn::Network<Cuda>;

namespace {

[[nodiscard]] bool is_launched() {
    return std::getenv("DPTK_TEST_RANKS") != nullptr;
}

dptk::ImageDataset digits(const std::string& split) {
    const std::string prefix = DPTK_EXAMPLE_DATA_DIR "/digits/" + split;
    return dptk::read_idx_images(prefix + "-images-idx3-ubyte.gz", prefix + "-labels-idx1-ubyte.gz",
                                 {.classes = 10});
}

/// The options of the example.
dptk::TrainerOptions options_of(int epochs) {
    return {.epochs = epochs,
            .batch_size = 32,
            .sgd = {.lr = 0.05, .momentum = 0.9},
            .seed = 1,
            .pixel_scale = 1.0 / 16};
}

/// Options with a small learning rate, so that rounding errors grow slowly.
dptk::TrainerOptions slow_options() {
    dptk::TrainerOptions options = options_of(1);
    options.sgd.lr = 0.01;
    return options;
}

/// A rank's network and stream. The stream is destroyed last.
struct Gpu {
    dptk::cuda::Stream stream;
    Net net;

    explicit Gpu(Precision precision)
        : net(dptk::nn::convnet({.input = {1, 8, 8}, .classes = 10}), 1,
              Cuda({.precision = precision, .stream = stream})) {}
};

/// A training's losses and accuracies, by epoch, and its parameters.
struct Trained {
    std::vector<double> numbers;
    std::uint64_t hash = 0;

    [[nodiscard]] double accuracy() const { return numbers.back(); }
    friend bool operator==(const Trained&, const Trained&) = default;
};

Trained train(ProcessGroup& group, dptk::Trainer<dptk::nn::Network<Cuda>>& trainer, int epochs) {
    const dptk::ImageDataset samples = digits("train");
    const dptk::ImageDataset tests = digits("test");
    Trained result;
    for (int epoch = 0; epoch < epochs; ++epoch) {
        const dptk::EpochResult trained = trainer.train_epoch(samples, epoch);
        CHECK(trained.samples == samples.size());
        const dptk::EpochResult tested = trainer.evaluate(tests);
        CHECK(tested.samples == tests.size());
        for (const double number : {trained.loss, trained.accuracy, tested.loss, tested.accuracy})
            result.numbers.push_back(number);
    }
    result.hash = dptk::detail::agreed_parameter_hash(group, trainer.parameters());
    return result;
}

std::vector<std::vector<float>> values_of(Net& net) {
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < net.parameter_count(); ++i) values.push_back(net.parameter_values(i));
    return values;
}

void set_values(Net& net, const std::vector<std::vector<float>>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) net.set_parameter_values(i, values[i]);
}

}  // namespace

TEST_CASE("the digits are learned in all precisions" * doctest::skip(is_launched())) {
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
        const std::string name(precision_name(precision));
        CAPTURE(name);
        dptk::launch_threads(1, [&](ProcessGroup& group) {
            Gpu gpu(precision);
            dptk::TrainerOptions options = options_of(15);
            options.cuda_graph = true;
            dptk::Trainer trainer(group, gpu.net, options);
            CHECK(train(group, trainer, options.epochs).accuracy() >= 0.97);
        });
    }
}

TEST_CASE("the first epoch is the reference's" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        const dptk::TrainerOptions options = slow_options();
        using Reference = dptk::nn::Reference<float>;
        dptk::nn::Network<Reference> reference(dptk::nn::convnet({.input = {1, 8, 8}, .classes = 10}), 1);
        dptk::Trainer expected(group, reference, options);
        Gpu gpu(Precision::fp32);
        dptk::Trainer trainer(group, gpu.net, options);
        const dptk::ImageDataset samples = digits("train");
        CHECK(trainer.train_epoch(samples, 0).loss ==
              doctest::Approx(expected.train_epoch(samples, 0).loss).epsilon(1e-3));
    });
}

namespace {

/// Continues from a state, and ends after some steps.
class Interrupt : public dptk::Callback {
  public:
    Interrupt(const dptk::TrainingState* state, std::int64_t last_step)
        : state_(state), last_step_(last_step) {}

    void train_begin(dptk::TrainingRun& run) override {
        if (state_ != nullptr) run.restore(*state_);
    }
    void batch_end(dptk::TrainingRun& run) override {
        if (run.status().step == last_step_) run.stop("enough steps");
    }

  private:
    const dptk::TrainingState* state_;
    std::int64_t last_step_;
};

template <class Backend>
dptk::TrainingState continued(ProcessGroup& group, dptk::nn::Network<Backend>& net,
                              const dptk::TrainerOptions& options, const dptk::TrainingState* state,
                              std::int64_t last_step) {
    dptk::Trainer trainer(group, net, options);
    trainer.add(dptk::LearningRate(dptk::CosineSchedule({.total = 2})));
    trainer.add(Interrupt(state, last_step));
    trainer.fit(digits("train"), digits("test"));
    return trainer.state();
}

}  // namespace

TEST_CASE("a run that was interrupted on a GPU continues there, and in host memory" *
          doctest::skip(is_launched())) {
    namespace nn = dptk::nn;
    const nn::Graph graph =
        nn::sequential({1, 8, 8}, {nn::Conv2d{.out_channels = 6, .bias = false}, nn::BatchNorm2d{},
                                   nn::ReLU{}, nn::Flatten{}, nn::Dropout{.p = 0.2}, nn::Linear{10}});
    for (const auto kind : {dptk::OptimizerKind::sgd, dptk::OptimizerKind::adamw}) {
        dptk::launch_threads(1, [&](ProcessGroup& group) {
            dptk::TrainerOptions options = options_of(2);
            options.optimizer = kind;
            const auto on_gpu = [&](const dptk::TrainingState* state, std::int64_t last_step) {
                const dptk::cuda::Stream stream;
                Net net(graph, 1, Cuda({.precision = Precision::fp32, .stream = stream}));
                return continued(group, net, options, state, last_step);
            };
            const dptk::TrainingState whole = on_gpu(nullptr, 0);
            const dptk::TrainingState part = on_gpu(nullptr, 7);
            const dptk::TrainingState rest = on_gpu(&part, 0);
            nn::Network<nn::Reference<float>> host(graph, 1);
            const dptk::TrainingState elsewhere = continued(group, host, options, &part, 0);
            // Each network selects its kernels by measuring them: sums are rounded differently.
            for (const dptk::TrainingState* found : {&rest, &elsewhere}) {
                REQUIRE(found->model.size() == whole.model.size());
                for (std::size_t i = 0; i < whole.model.size(); ++i) {
                    CAPTURE(whole.model[i].name);
                    if (whole.model[i].dtype != dptk::DType::f32) {
                        CHECK(found->model[i].bytes == whole.model[i].bytes);
                        continue;
                    }
                    const std::vector<float> expected = whole.model[i].values<float>();
                    const std::vector<float> values = found->model[i].values<float>();
                    double error = 0, size = 1e-30;
                    for (std::size_t e = 0; e < expected.size(); ++e) {
                        error += (values[e] - expected[e]) * (values[e] - expected[e]);
                        size += expected[e] * expected[e];
                    }
                    CHECK(error / size < 1e-3);
                }
            }
        });
    }
}

TEST_CASE("compressed gradients train as well, kernel by kernel and as a graph" *
          doctest::skip(is_launched())) {
    namespace hooks = dptk::hooks;
    for (const bool cuda_graph : {false, true}) {
        for (const int way : {0, 1}) {
            dptk::launch_threads(1, [&](ProcessGroup& group) {
                Gpu gpu(Precision::tf32);
                dptk::TrainerOptions options = options_of(15);
                options.cuda_graph = cuda_graph;
                if (way == 0) options.comm_hook = hooks::bf16_compress();
                if (way == 1)
                    options.comm_hook = hooks::powersgd({.matrix_approximation_rank = 4, .start_step = 50});
                dptk::Trainer trainer(group, gpu.net, options);
                CHECK(train(group, trainer, options.epochs).accuracy() >= 0.96);
            });
        }
    }
}

// All trainers use one network, so that its kernels are chosen only once.
TEST_CASE("graphs and datasets on the device leave the same bits" * doctest::skip(is_launched())) {
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
        const std::string name(precision_name(precision));
        CAPTURE(name);
        dptk::launch_threads(1, [&](ProcessGroup& group) {
            Gpu gpu(precision);
            const std::vector<std::vector<float>> initial = values_of(gpu.net);
            std::vector<std::unique_ptr<dptk::Trainer<dptk::nn::Network<Cuda>>>>
                trainers;  // kept alive, since they use the network's gradients
            const auto trained_with = [&](const dptk::TrainerOptions& options) {
                set_values(gpu.net, initial);
                trainers.push_back(
                    std::make_unique<dptk::Trainer<dptk::nn::Network<Cuda>>>(group, gpu.net, options));
                return train(group, *trainers.back(), options.epochs);
            };
            dptk::TrainerOptions options = options_of(3);
            const Trained plain = trained_with(options);
            CHECK(trained_with(options) == plain);
            options.cuda_graph = true;
            CHECK(trained_with(options) == plain);
            options.data_on_device = true;
            CHECK(trained_with(options) == plain);
            options.cuda_graph = false;
            CHECK(trained_with(options) == plain);
            options.ready = dptk::Ready::marked;
            CHECK(trained_with(options) == plain);
            options.cuda_graph = true;
            CHECK(trained_with(options) == plain);
        });
    }
}

TEST_CASE("a graph is captured again when the network's memory has moved" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        const dptk::ImageDataset samples = digits("train");
        Gpu gpu(Precision::fp32);
        dptk::TrainerOptions options = options_of(2);
        options.cuda_graph = true;
        dptk::Trainer trainer(group, gpu.net, options);
        const double first = trainer.train_epoch(samples, 0).loss;
        const std::size_t before = gpu.net.backend().memory_version();
        dptk::nn::DeviceTensor<float> large({500, 1, 8, 8});
        dptk::cuda::check(cudaMemsetAsync(large.data(), 0, large.size() * sizeof(float), gpu.stream.get()),
                          "cudaMemsetAsync");
        gpu.net.forward(large);
        CHECK(gpu.net.backend().memory_version() != before);
        CHECK(trainer.train_epoch(samples, 1).loss < first);
    });
}

TEST_CASE("two ranks that share a GPU train as one does" * doctest::skip(is_launched())) {
    double alone = 0;
    const dptk::ImageDataset samples = digits("train");
    dptk::launch_threads(1, [&](ProcessGroup& group) {
        Gpu gpu(Precision::fp32);
        dptk::Trainer trainer(group, gpu.net, slow_options());
        alone = trainer.train_epoch(samples, 0).loss;
    });
    ::setenv("DPTK_DEVICE_BACKEND", "staged", 1);
    for (const dptk::Ready ready : {dptk::Ready::at_synchronize, dptk::Ready::marked}) {
        dptk::launch_threads(2, [&](ProcessGroup& group) {
            Gpu gpu(Precision::fp32);
            dptk::TrainerOptions options = slow_options();
            options.batch_size = 16;
            options.ready = ready;
            options.data_on_device = group.rank() == 1;
            dptk::Trainer trainer(group, gpu.net, options);
            CHECK(trainer.train_epoch(samples, 0).loss == doctest::Approx(alone).epsilon(1e-3));
            static_cast<void>(dptk::detail::agreed_parameter_hash(group, trainer.parameters()));
        });
    }
    ::unsetenv("DPTK_DEVICE_BACKEND");
}

TEST_CASE("mistakes are errors of all ranks" * doctest::skip(is_launched())) {
    ::setenv("DPTK_DEVICE_BACKEND", "staged", 1);
    dptk::launch_threads(2, [](ProcessGroup& group) {
        Gpu gpu(Precision::fp32);
        std::string text;
        const auto refuses = [&](const dptk::TrainerOptions& options, const char* why) {
            CHECK(test::throws<dptk::ArgumentError>(
                text, [&] { dptk::Trainer(group, gpu.net, options); }, test::Agreed::yes));
            CHECK(test::contains(text, why));
        };
        refuses({.reproducible_shards = 2}, "reproducible_shards requires a network in host memory");
        refuses({.cuda_graph = true}, "cuda_graph requires NCCL");
        Net on_default_stream(dptk::nn::mlp({.input = {1, 8, 8}, .classes = 10}), 1);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { dptk::Trainer(group, on_default_stream, {.cuda_graph = true}); }, test::Agreed::yes));
        CHECK(test::contains(text, "a stream of its own"));
        dptk::nn::Network<dptk::nn::Reference<float>> on_host(
            dptk::nn::mlp({.input = {1, 8, 8}, .classes = 10}), 1);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { dptk::Trainer(group, on_host, {.data_on_device = true}); }, test::Agreed::yes));
        CHECK(test::contains(text, "data_on_device requires a network on a GPU"));
    });
    ::unsetenv("DPTK_DEVICE_BACKEND");
    dptk::launch_threads(1, [](ProcessGroup& group) {
        Gpu gpu(Precision::fp32);
        dptk::Trainer trainer(group, gpu.net, options_of(1));
        const std::vector<std::size_t> shape{2, 3, 8, 8};
        const dptk::ImageDataset colored(std::vector<std::uint8_t>(2 * 3 * 8 * 8), shape, {0, 1});
        CHECK_THROWS_WITH_AS(
            trainer.train_epoch(colored, 0),
            "Trainer: expected samples of shape [1, 8, 8], the network's input, found [3, 8, 8]",
            dptk::ArgumentError);
    });
}
