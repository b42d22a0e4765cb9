// Tests the Trainer's ways of summing gradients, on the digits that ship with dptk.
#include <doctest/doctest.h>
#include <dptk/data/dataset_views.hpp>
#include <dptk/data/readers/idx_images.hpp>
#include <dptk/ddp/hooks/powersgd.hpp>
#include <dptk/train.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "nn/support.hpp"
#include "support/agreed_errors.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;
using Backend = dptk::nn::Reference<float>;

dptk::ImageDataset digits(const std::string& split) {
    const std::string prefix = DPTK_EXAMPLE_DATA_DIR "/digits/" + split;
    return dptk::read_idx_images(prefix + "-images-idx3-ubyte.gz", prefix + "-labels-idx1-ubyte.gz",
                                 {.classes = 10});
}

dptk::nn::Network<Backend> small_mlp() {
    using namespace dptk::nn;
    return {sequential({1, 8, 8}, {Flatten{}, Linear{64}, ReLU{}, Linear{10}}), 1};
}

struct Trained {
    double accuracy = 0;
    std::uint64_t hash = 0;
    std::size_t steps = 0;
};

Trained train(ProcessGroup& group, dptk::TrainerOptions options) {
    const dptk::ImageDataset samples = digits("train");
    dptk::nn::Network<Backend> net = small_mlp();
    options.sgd = {.lr = 0.05, .momentum = 0.9};
    options.pixel_scale = 1.0 / 16;
    dptk::Trainer trainer(group, net, options);
    for (int epoch = 0; epoch < options.epochs; ++epoch) trainer.train_epoch(samples, epoch);
    const dptk::DistributedSampler sampler(samples, group, {.padding = dptk::Padding::none});
    const dptk::BatchSampler batches(sampler, options.batch_size);
    return {trainer.evaluate(digits("test")).accuracy,
            dptk::detail::agreed_parameter_hash(group, trainer.parameters()),
            batches.size() * static_cast<std::size_t>(options.epochs)};
}

/// Returns the bytes that a rank contributes to the collectives of one step: two thin matrices for each
/// weight, and the biases.
std::size_t powersgd_bytes(std::size_t rank) {
    std::size_t elements = 0;
    small_mlp().for_each_parameter([&](const dptk::ParameterRef& parameter) {
        elements +=
            parameter.shape.size() == 2 ? (parameter.shape[0] + parameter.shape[1]) * rank : parameter.count;
    });
    return elements * sizeof(float);
}

}  // namespace

TEST_CASE("PowerSGD trains the digits as well as the whole gradients, and sends what its rank predicts") {
    for (const int ranks : {2, 4}) {
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            const std::size_t batch_size = 32 / static_cast<std::size_t>(group.size());
            const double whole = train(group, {.epochs = 15, .batch_size = batch_size}).accuracy;
            const auto hook = dptk::hooks::powersgd({.matrix_approximation_rank = 2, .start_step = 0});
            const Trained compressed =
                train(group, {.epochs = 15, .batch_size = batch_size, .comm_hook = hook});
            CHECK(whole > 0.95);
            CHECK(compressed.accuracy >= whole - 0.005);
            CHECK(hook->bytes_sent() == compressed.steps * powersgd_bytes(2));
        });
    }
}

TEST_CASE("reproducible shards give the same bits for every number of ranks") {
    const dptk::TrainerOptions options{.epochs = 2, .batch_size = 8, .reproducible_shards = 8};
    Trained alone;
    dptk::launch_threads(1, [&](ProcessGroup& group) { alone = train(group, options); });
    CHECK(alone.accuracy > 0.8);
    for (const int ranks : {2, 3, 4, 5, 8}) {
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            const Trained trained = train(group, options);
            CHECK(trained.hash == alone.hash);
            CHECK(trained.accuracy == alone.accuracy);
        });
    }
}

TEST_CASE("mistakes in the trainer's options are reported on all ranks") {
    dptk::launch_threads(2, [](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = small_mlp();
        std::string text;
        const auto make = [&](const dptk::TrainerOptions& options) {
            return test::throws<dptk::ArgumentError>(
                text, [&] { dptk::Trainer(group, net, options); }, test::Agreed::yes);
        };
        CHECK(make({.batch_size = 0}));
        CHECK(make({.epochs = 0}));
        CHECK(make({.accumulate = 0}));
        CHECK(test::contains(text, "accumulate must be at least 1, got 0"));
        CHECK(make({.accumulate = 2, .reproducible_shards = 2}));
        CHECK(test::contains(text, "accumulate and reproducible_shards cannot be combined"));
        CHECK(make({.reproducible_shards = 1}));
        CHECK(test::contains(text, "invalid number of shards 1: expected at least the number of ranks, 2"));
        CHECK(make({.comm_hook = dptk::hooks::powersgd(), .reproducible_shards = 2}));
        CHECK(test::contains(text, "comm_hook and reproducible_shards cannot be combined"));
        dptk::nn::Network<Backend> dropping(
            dptk::nn::sequential({64}, {dptk::nn::Dropout{0.5}, dptk::nn::Linear{10}}), 1);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { dptk::Trainer(group, dropping, {.reproducible_shards = 2}); }, test::Agreed::yes));
        CHECK(test::contains(text, "reproducible_shards requires a network without batch norms and dropout"));
        CHECK(make({.cuda_graph = true}));
        CHECK(test::contains(text, "cuda_graph requires a network on a GPU"));
        CHECK(make({.data_on_device = true}));
        CHECK(test::contains(text, "data_on_device requires a network on a GPU"));
        CHECK(make({.workers = group.rank() == 1 ? std::size_t{2000} : std::size_t{1}}));
        CHECK(test::contains(text, "workers must be at most 1024, got 2000"));
        // Only one rank has an invalid option.
        CHECK(make({.batch_size = group.rank() == 1 ? std::size_t{0} : std::size_t{8}}));
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { dptk::Trainer(group, net, {.reproducible_shards = group.rank() == 1 ? 2U : 0U}); },
            test::Agreed::yes));
        CHECK(test::contains(text, "rank 1 has reproducible_shards 2, but rank 0 has reproducible_shards 0"));
        const auto differs = [&](dptk::AdamOptions adam, const char* message) {
            if (group.rank() == 0) adam = {};
            CHECK(test::throws<dptk::MismatchError>(
                text,
                [&] { dptk::Trainer(group, net, {.optimizer = dptk::OptimizerKind::adamw, .adam = adam}); },
                test::Agreed::yes));
            CHECK(test::contains(text, message));
        };
        differs({.lr = 0.5}, "rank 1 has lr 0.5");
        differs({.beta1 = 0.5}, "rank 1 has beta1 0.5");
        differs({.beta2 = 0.5}, "rank 1 has beta2 0.5");
        differs({.eps = 0.5}, "rank 1 has eps 0.5");
        differs({.weight_decay = 0.5}, "rank 1 has weight_decay 0.5");
    });
}

TEST_CASE("datasets whose sizes differ between ranks are an error on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() != 3) return;
        const std::size_t shape[] = {group.rank() == 1 ? 100U : 200U, 8, 8};
        const dptk::ImageDataset samples(std::vector<std::uint8_t>(shape[0] * 64), shape,
                                         std::vector<std::uint8_t>(shape[0]), {.classes = 10});
        dptk::nn::Network<Backend> net = small_mlp();
        dptk::Trainer trainer(group, net, {});
        CHECK(test::all_throw<dptk::MismatchError>(group, "rank 1 has samples 100",
                                                   [&] { trainer.train_epoch(samples, 0); }));
        CHECK(test::all_throw<dptk::MismatchError>(group, "rank 1 has samples 100",
                                                   [&] { static_cast<void>(trainer.evaluate(samples)); }));
    });
}

namespace {

/// A dataset of pairs, made from the digits by a function.
template <class Fn>
auto digits_as(const dptk::ImageDataset& digits, Fn fn) {
    using Sample = decltype(fn(digits[0]));
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < digits.size(); ++i) samples.push_back(fn(digits[i]));
    return samples;
}

/// The losses of an epoch and of an evaluation, and the parameters after them.
struct Losses {
    double trained = 0;
    double evaluated = 0;
    std::uint64_t hash = 0;
    friend bool operator==(const Losses&, const Losses&) = default;
};

template <class Dataset>
Losses losses(ProcessGroup& group, const Dataset& samples, dptk::TrainerOptions options = {}) {
    dptk::nn::Network<Backend> net = small_mlp();
    options.sgd = {.lr = 0.05, .momentum = 0.9};
    dptk::Trainer trainer(group, net, options);
    const double trained = trainer.train_epoch(samples, 1).loss;
    const double evaluated = trainer.evaluate(samples).loss;
    return {trained, evaluated, dptk::detail::agreed_parameter_hash(group, trainer.parameters())};
}

dptk::Image image_of(const dptk::LabeledImageRef& digit) {
    return {8, 8, 1, std::vector<std::uint8_t>(digit.pixels.begin(), digit.pixels.end())};
}

/// A dataset that cannot read some samples on one rank.
struct Unreadable {
    const dptk::ImageDataset& digits;
    bool is_damaged;

    [[nodiscard]] std::size_t size() const { return digits.size(); }
    [[nodiscard]] std::pair<dptk::Image, int> get(std::size_t index) const {
        if (is_damaged && index >= 70 && index < 100) throw std::runtime_error("the disk is gone");
        return {image_of(digits[index]), digits[index].label};
    }
};

}  // namespace

TEST_CASE("a trainer takes any labeled samples, with the same result, and labels of any integer type") {
    const dptk::ImageDataset images = digits("train");
    const auto as_bytes = digits_as(images, [](const dptk::LabeledImageRef& digit) {
        return std::pair(digit.pixels, static_cast<std::int64_t>(digit.label));
    });
    const auto as_images = digits_as(images, [](const dptk::LabeledImageRef& digit) {
        return std::tuple(image_of(digit), static_cast<std::uint16_t>(digit.label), "a name");
    });
    const auto as_numbers = digits_as(images, [](const dptk::LabeledImageRef& digit) {
        std::vector<double> values;
        for (const std::uint8_t pixel : digit.pixels) values.push_back(static_cast<float>(pixel) / 256);
        return std::pair(values, static_cast<int>(digit.label));
    });
    const std::vector<int> labels(images.labels().begin(), images.labels().end());
    const dptk::TensorDataset arrays(images.size(), images.pixels(), labels);
    test::on_ranks([&](ProcessGroup& group) {
        const Losses expected = losses(group, images);
        CHECK(losses(group, arrays) == expected);
        CHECK(expected.evaluated < expected.trained);
        CHECK(losses(group, as_bytes) == expected);
        const Losses divided = losses(group, as_images);  // pixel / 255 differs from pixel * (1 / 255)
        CHECK(divided.trained == doctest::Approx(expected.trained).epsilon(1e-5));
        CHECK(losses(group, as_numbers) == losses(group, images, {.pixel_scale = 1.0 / 256}));
    });
}

TEST_CASE("micro-batches equal one large batch, also if the last ones have fewer or no samples") {
    const dptk::ImageDataset all = digits("train");
    std::vector<std::size_t> first(43);
    std::iota(first.begin(), first.end(), std::size_t{0});
    const dptk::ImageDataset images = all.subset(first);
    for (const int ranks : {1, 2, 3}) {
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            const Losses large = losses(group, images, {.batch_size = 8});
            for (const dptk::Ready ready : {dptk::Ready::at_synchronize, dptk::Ready::marked}) {
                const Losses small =
                    losses(group, images, {.batch_size = 2, .accumulate = 4, .ready = ready});
                CHECK(small.trained == doctest::Approx(large.trained).epsilon(1e-5));
                CHECK(small.evaluated == doctest::Approx(large.evaluated).epsilon(1e-5));
            }
            CHECK(losses(group, images, {.batch_size = 2}).evaluated !=
                  doctest::Approx(large.evaluated).epsilon(1e-5));
        });
    }
}

TEST_CASE("transforms of the training and of the evaluation, whatever the number of workers is") {
    const dptk::ImageDataset images = digits("train");
    const Unreadable samples{images, false};
    const auto with = [](std::size_t workers) {
        return dptk::TrainerOptions{.batch_size = 8,
                                    .transform = {dptk::RandomResizedCrop(8), dptk::RandomHorizontalFlip()},
                                    .evaluation_transform = {dptk::Resize(8)},
                                    .workers = workers,
                                    .reproducible_shards = 4};
    };
    Losses alone;
    dptk::launch_threads(1, [&](ProcessGroup& group) { alone = losses(group, samples, with(0)); });
    for (const int ranks : {1, 2, 4}) {
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            for (const std::size_t workers : {0U, 1U, 4U}) {
                CAPTURE(workers);
                CHECK(losses(group, samples, with(workers)) == alone);
            }
        });
    }
    dptk::launch_threads(1, [&](ProcessGroup& group) {
        dptk::TrainerOptions plain = with(0);
        plain.transform = {};
        CHECK(losses(group, samples, plain).trained != alone.trained);
    });
}

TEST_CASE("a sample that the network does not accept is an error that names it") {
    const dptk::ImageDataset images = digits("train");
    const auto fails = [&](const auto& samples, const std::string& expected) {
        std::string text;
        CHECK(test::throws<dptk::SampleError>(text, [&] {
            dptk::launch_threads(1, [&](ProcessGroup& group) { static_cast<void>(losses(group, samples)); });
        }));
        CAPTURE(text);
        CHECK(test::contains(text, "sample 70: Trainer: expected " + expected));
    };
    for (const int wrong : {10, -1, 1 << 20}) {
        auto samples = digits_as(images, [](const dptk::LabeledImageRef& digit) {
            return std::pair(digit.pixels, static_cast<int>(digit.label));
        });
        samples[70].second = wrong;
        fails(samples, "a label in [0, 10), the network's classes, found " + std::to_string(wrong));
        samples[70] = {samples[70].first.first(63), 1};
        fails(samples, "samples of shape [1, 8, 8], the network's input, found [63]");
    }
    const std::vector<int> labels(2 * images.size());
    std::string text;
    CHECK(test::throws<dptk::SampleError>(text, [&] {
        const dptk::TensorDataset two_labels(images.size(), images.pixels(), labels);
        dptk::launch_threads(1, [&](ProcessGroup& group) { static_cast<void>(losses(group, two_labels)); });
    }));
    CHECK(test::contains(text, "Trainer: expected one label, found 2"));
    auto sized = digits_as(images, [](const dptk::LabeledImageRef& digit) {
        return std::pair(image_of(digit), static_cast<int>(digit.label));
    });
    sized[70].first = {4, 16, 1, std::vector<std::uint8_t>(64)};
    fails(sized, "samples of shape [1, 8, 8], the network's input, found [1, 16, 4]");
}

TEST_CASE("a loss that is no longer finite ends all ranks, and tells where it began") {
    const dptk::ImageDataset images = digits("train");
    std::vector<std::pair<std::vector<float>, int>> samples;
    for (std::size_t i = 0; i < 160; ++i) {
        const dptk::LabeledImageRef image = images[i];
        samples.emplace_back(std::vector<float>(image.pixels.begin(), image.pixels.end()), image.label);
    }
    samples[77].first[3] = std::numeric_limits<float>::quiet_NaN();
    for (const std::size_t shards : {0U, 4U}) {
        for (const int ranks : {1, 2, 3}) {
            if (shards != 0 && ranks == 3) continue;
            dptk::launch_threads(ranks, [&](ProcessGroup& group) {
                const auto own = dptk::DistributedSampler(160, group, {.padding = dptk::Padding::none});
                std::size_t place = 0;
                while (place < own.size() && own[place] != 77) ++place;
                const int has_it = place < own.size() ? group.rank() : 0;
                const int rank = group.all_reduce_value(has_it, dptk::ReduceOp::max);
                dptk::nn::Network<Backend> net = small_mlp();
                dptk::Trainer trainer(group, net, {.batch_size = 4, .reproducible_shards = shards});
                try {
                    trainer.train_epoch(samples, 0);
                    FAIL("no error");
                } catch (const dptk::NonFiniteLossError& error) {
                    CHECK(error.agreed());
                    CHECK(test::contains(error.what(), "a smaller learning rate than 0.01 may help"));
                    CHECK(test::contains(error.details(), " 77"));
                    CHECK(test::contains(error.details(), "weight"));
                    if (shards == 0) {
                        CHECK(error.rank() == rank);
                        CHECK(test::contains(error.what(), "first on rank " + std::to_string(rank)));
                    }
                }
            });
        }
    }
}

TEST_CASE("a sample that one rank cannot read ends all ranks") {
    const dptk::ImageDataset images = digits("train");
    for (const std::size_t workers : {0U, 2U}) {
        std::string text;
        CHECK(test::throws<dptk::SampleError>(text, [&] {
            dptk::launch_threads(2, [&](ProcessGroup& group) {
                static_cast<void>(losses(group, Unreadable{images, group.rank() == 1}, {.workers = workers}));
            });
        }));
        CHECK(test::contains(text, "the disk is gone"));
    }
}

namespace {

struct NormedTraining {
    std::vector<std::vector<float>> values;
    std::vector<float> statistics;
    double loss = 0;
};

/// Trains a network with batch norms on 11 digits: with 8 samples in a step, the last step has 3 samples.
NormedTraining train_with_norms(ProcessGroup& group, std::size_t batch_size, bool is_synchronized,
                                std::size_t accumulate = 1) {
    const dptk::ImageDataset images = digits("train");
    std::vector<std::pair<dptk::Image, int>> samples;
    for (std::size_t i = 0; i < 11; ++i) samples.emplace_back(image_of(images[i]), images[i].label);
    dptk::nn::Graph graph = dptk::nn::convnet_mnist({.input = {1, 8, 8}, .classes = 10});
    if (is_synchronized) graph.synchronize_batch_norms();
    dptk::nn::Network<Backend> net(graph, 1);
    dptk::Trainer trainer(group, net, {.batch_size = batch_size, .accumulate = accumulate});
    NormedTraining result;
    for (int epoch = 0; epoch < 2; ++epoch) trainer.train_epoch(samples, epoch);
    result.loss = trainer.evaluate(samples).loss;
    for (std::size_t i = 0; i < net.parameter_count(); ++i) result.values.push_back(net.parameter_values(i));
    net.for_each_buffer([&](const dptk::nn::NamedBuffer& buffer) {
        if (buffer.data.dtype != dptk::DType::f32) return;
        const auto* const values = static_cast<const float*>(buffer.data.data);
        result.statistics.insert(result.statistics.end(), values, values + buffer.data.count);
    });
    CHECK(net.mode() == dptk::nn::Mode::train);
    net.set_mode(dptk::nn::Mode::evaluate);  // as for norms that are frozen
    trainer.evaluate(samples);
    CHECK(net.mode() == dptk::nn::Mode::evaluate);
    return result;
}

}  // namespace

TEST_CASE("all ranks evaluate with rank 0's running statistics") {
    for (const int ranks : {2, 3, 4}) {
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            const NormedTraining trained = train_with_norms(group, 2, false);
            std::vector<float> of_rank_0 = trained.statistics;
            group.broadcast(of_rank_0, 0);
            CHECK(trained.statistics == of_rank_0);
        });
    }
}

TEST_CASE("synchronized batch norms train like one rank, also where a rank has fewer or no samples") {
    NormedTraining alone;
    dptk::launch_threads(1, [&](ProcessGroup& group) { alone = train_with_norms(group, 8, true); });
    for (const int ranks : {2, 4}) {
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            const auto trained = train_with_norms(group, 8 / static_cast<std::size_t>(group.size()), true);
            CHECK(std::abs(trained.loss - alone.loss) < 1e-4);
            for (std::size_t i = 0; i < alone.values.size(); ++i)
                CHECK(dptk::nn::testing::difference(trained.values[i], alone.values[i]) < 1e-4);
            CHECK(dptk::nn::testing::difference(trained.statistics, alone.statistics) < 1e-4);
        });
    }
    dptk::launch_threads(2,
                         [](ProcessGroup& group) {  // some micro-batches have no samples on one rank or both
                             CHECK(train_with_norms(group, 2, true, 3).loss < 3);
                         });
}
