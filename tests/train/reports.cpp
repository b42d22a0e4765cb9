// Tests of what callbacks make of the outputs of an evaluation: results by class and misclassified
// samples.
#include <doctest/doctest.h>
#include <dptk/train.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model.hpp"
#include "support/agreed_errors.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::TrainingRun;
using test::Backend;

/// 30 of the digits, each of them three times, so that scores are equal.
dptk::ImageDataset repeated_digits() {
    const dptk::ImageDataset all = test::digits("train");
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < 90; ++i) places.push_back(i % 30);
    return all.subset(places);
}

/// What one pass over all samples finds.
struct Expected {
    dptk::ConfusionMatrix matrix{10};
    std::size_t top_3 = 0;
    std::vector<dptk::MisclassifiedSample> wrong;
};

dptk::Image as_image(const dptk::ImageDataset& samples, std::size_t i) {
    const auto pixels = samples.pixels().subspan(64 * i, 64);
    const auto [lowest, highest] = std::minmax_element(pixels.begin(), pixels.end());
    dptk::Image image{.width = 8, .height = 8, .channels = 1, .pixels = {}};
    for (const std::uint8_t pixel : pixels)
        image.pixels.push_back(
            static_cast<std::uint8_t>(std::lround(255.0 * (pixel - *lowest) / (*highest - *lowest))));
    return image;
}

Expected expected_for(const dptk::ImageDataset& samples) {
    dptk::nn::Network<Backend> net = test::small_convnet();
    net.set_mode(dptk::nn::Mode::evaluate);
    dptk::Tensor<float> input({samples.size(), 1, 8, 8});
    for (std::size_t i = 0; i < input.size(); ++i)
        input[i] = static_cast<float>(samples.pixels()[i]) * (1.0F / 16);
    const dptk::Tensor<float>& logits = net.forward(input);
    Expected expected;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const std::size_t label = samples.labels()[i];
        std::vector<std::pair<float, std::size_t>> order;  // the largest score first
        for (std::size_t c = 0; c < 10; ++c) order.emplace_back(-logits[10 * i + c], c);
        std::sort(order.begin(), order.end());
        expected.matrix.add(label, order[0].second);
        for (std::size_t k = 0; k < 3; ++k) expected.top_3 += order[k].second == label ? 1 : 0;
        if (order[0].second == label) continue;
        double sum = 0;
        for (const auto& [score, c] : order) sum += std::exp(double{order[0].first} - score);
        expected.wrong.push_back({i, label, order[0].second, 1 / sum, as_image(samples, i)});
    }
    std::stable_sort(expected.wrong.begin(), expected.wrong.end(),
                     [](const auto& a, const auto& b) { return a.score > b.score; });
    return expected;
}

std::string text_of_file(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("precision, recall and F1 are those of scikit-learn") {
    dptk::ConfusionMatrix matrix(4);  // no sample has class 3 as its label or prediction
    const std::size_t pairs[][2] = {{0, 0}, {0, 0}, {0, 1}, {1, 1}, {1, 0}, {2, 1}};
    for (const auto& [label, predicted] : pairs) matrix.add(label, predicted);
    const auto is = [](const dptk::ClassResult& result, double precision, double recall, double f1,
                       std::uint64_t support) {
        return result.precision == doctest::Approx(precision) && result.recall == doctest::Approx(recall) &&
               result.f1 == doctest::Approx(f1) && result.support == support;
    };
    CHECK(is(matrix.result(0), 2.0 / 3, 2.0 / 3, 2.0 / 3, 3));
    CHECK(is(matrix.result(1), 1.0 / 3, 1.0 / 2, 0.4, 2));
    CHECK(is(matrix.result(2), 0, 0, 0, 1));
    CHECK(is(matrix.result(3), 0, 0, 0, 0));
    CHECK(is(matrix.macro_mean(), 1.0 / 4, 7.0 / 24, 4.0 / 15, 6));
    CHECK(is(matrix.weighted_mean(), 4.0 / 9, 1.0 / 2, 7.0 / 15, 6));
    CHECK(matrix.accuracy() == 0.5);
    CHECK(dptk::ConfusionMatrix(0).accuracy() == 0);
}

TEST_CASE("among equal scores, those of lower classes come first") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto rank = [](std::vector<float> scores, std::size_t label) {
        return dptk::detail::rank_of_label(scores, label);
    };
    CHECK(rank({1, 3, 2}, 1) == 0);
    CHECK(rank({1, 3, 2}, 0) == 2);
    CHECK(rank({2, 2, 2}, 0) == 0);
    CHECK(rank({2, 2, 2}, 1) == 1);
    CHECK(rank({2, 2, 2}, 2) == 2);
    CHECK(rank({1, nan, 0}, 0) == 1);
    CHECK(rank({1, nan, 0}, 1) == 2);
}

TEST_CASE("results by class and misclassified samples over all ranks are those of one pass") {
    const dptk::ImageDataset samples = repeated_digits();
    const Expected expected = expected_for(samples);
    REQUIRE(expected.wrong.size() > 20);
    REQUIRE(expected.wrong[0].score == expected.wrong[1].score);
    const TemporaryFolder folder;
    for (const int ranks : {1, 2, 3}) {
        CAPTURE(ranks);
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer<Backend> trainer(group, net, test::small_options(1));
            const auto& top_3 =
                trainer.add(dptk::ClassReport({.top_k = 3, .path = (folder / "classes.txt").string()}));
            const auto& top_1 = trainer.add(dptk::ClassReport({.top_k = 1}));
            const auto& wrong = trainer.add(dptk::Misclassified({.count = 20}));
            for (int pass = 0; pass < 2; ++pass) {
                const dptk::EpochResult result = trainer.evaluate(samples);
                CHECK(std::ranges::equal(top_3.matrix().counts(), expected.matrix.counts()));
                CHECK(top_3.top_k_accuracy() == static_cast<double>(expected.top_3) / 90);
                CHECK(top_1.top_k_accuracy() == result.accuracy);
                CHECK(top_1.matrix().accuracy() == result.accuracy);
                CHECK(wrong.samples().size() == (group.rank() == 0 ? 20 : 0));
                for (std::size_t i = 0; i < wrong.samples().size(); ++i) {
                    CAPTURE(i);
                    const dptk::MisclassifiedSample& found = wrong.samples()[i];
                    CHECK(found.position == expected.wrong[i].position);
                    CHECK(found.label == expected.wrong[i].label);
                    CHECK(found.predicted == expected.wrong[i].predicted);
                    CHECK(found.score == doctest::Approx(expected.wrong[i].score).epsilon(1e-12));
                    CHECK(found.image == expected.wrong[i].image);
                }
            }
            group.barrier();
            const std::string text = text_of_file(folder / "classes.txt");
            CHECK(text == top_3.text());
            CHECK(text.starts_with("        class  precision  recall      F1  support\n            0  "));
            CHECK(test::contains(text, "\ntop-3 accuracy: "));
            CHECK(test::contains(text, " of 90 samples)\n"));
        });
    }
}

TEST_CASE("a rank without samples takes part in the results by class") {
    const dptk::ImageDataset two = repeated_digits().subset(std::vector<std::size_t>{0, 1});
    dptk::launch_threads(3, [&](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer<Backend> trainer(group, net, test::small_options(1));
        const auto& classes = trainer.add(dptk::ClassReport());
        const auto& wrong = trainer.add(dptk::Misclassified());
        trainer.evaluate(two);
        CHECK(classes.matrix().samples() == 2);
        CHECK(wrong.samples().size() + classes.matrix().correct() ==
              (group.rank() == 0 ? 2 : classes.matrix().correct()));
    });
}

TEST_CASE("mistakes in reports are errors on all ranks") {
    CHECK_THROWS_WITH_AS(dptk::ClassReport({.top_k = 0}), "ClassReport: top_k must be at least 1, got 0",
                         dptk::ArgumentError);
    const dptk::ImageDataset samples = repeated_digits();
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const auto fails = [&]<class E>(E, auto callback, const std::string& message) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer<Backend> trainer(group, net, test::small_options(1));
            trainer.add(std::move(callback));
            return test::all_throw<E>(group, message, [&] { trainer.fit(samples, samples); });
        };
        const dptk::ArgumentError argument("");
        CHECK(fails(argument, dptk::ClassReport({.class_names = {"a", "b"}}),
                    "ClassReport: expected 10 class names, one for each class, got 2"));
        CHECK(fails(argument, dptk::Misclassified({.class_names = {"a"}}),
                    "Misclassified: expected 10 class names, one for each class, got 1"));
        CHECK(fails(dptk::Error(""), dptk::ClassReport({.path = (folder / "no/classes.txt").string()}),
                    "no/classes.txt"));
    });
}

TEST_CASE("outputs of an evaluation are available after each of its batches, and only then") {
    struct Asks : dptk::Callback {
        void test_batch(TrainingRun& run) override {
            const dptk::BatchOutputs& outputs = run.test_outputs();
            CHECK(&outputs == &run.test_outputs());
            CHECK(outputs.classes == 10);
            CHECK(outputs.scores.size() == 10 * outputs.size());
            CHECK(outputs.positions.size() == outputs.size());
            CHECK_THROWS_AS((void)run.test_image(outputs.size()), dptk::ArgumentError);
        }
        void test_end(TrainingRun& run) override {
            CHECK_THROWS_WITH_AS((void)run.test_outputs(),
                                 "Trainer: test_outputs() can only be called in Callback::test_batch()",
                                 dptk::ArgumentError);
            CHECK_THROWS_AS((void)run.test_image(0), dptk::ArgumentError);
        }
    };
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        for (const std::size_t shards : {0, 4}) {
            dptk::nn::Network<Backend> net(
                dptk::nn::sequential({1, 8, 8}, {dptk::nn::Flatten{}, dptk::nn::Linear{10}}), 1);
            dptk::TrainerOptions options = test::small_options(1);
            options.reproducible_shards = shards;
            dptk::Trainer<Backend> trainer(group, net, options);
            trainer.add(Asks());
            const auto& classes = trainer.add(dptk::ClassReport());
            const dptk::EpochResult result = trainer.evaluate(repeated_digits());
            CHECK(classes.matrix().accuracy() == result.accuracy);
            CHECK(trainer.step_times().has_value() == (shards == 0));
        }
    });
}

TEST_CASE("TensorBoard gets the images of misclassified samples, and their classes if these are UTF-8") {
    const dptk::ImageDataset samples = repeated_digits();
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        for (const std::string name : {"", "one", "\xff"}) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer<Backend> trainer(group, net, test::small_options(1));
            std::vector<std::string> names(name.empty() ? 0 : 10, name);
            const auto& wrong = trainer.add(dptk::Misclassified({.class_names = names, .count = 12}));
            const std::filesystem::path runs =
                folder / ("runs" + std::to_string(name.size()) + name.substr(0, 1));
            trainer.add(dptk::TensorBoard(runs.string(), {.misclassified = &wrong}));
            trainer.fit(samples, samples);
            if (group.rank() != 0) continue;
            REQUIRE(wrong.samples().size() == 12);
            const std::string events = text_of_file(std::filesystem::directory_iterator(runs)->path());
            CHECK(test::contains(events, "misclassified/01"));
            CHECK(test::contains(events, "misclassified/12"));
            CHECK(test::contains(events, "| label | predicted |") == (name != "\xff"));
            CHECK(test::contains(events, "| one | one |") == (name == "one"));
        }
    });
}

TEST_CASE("inputs become images if they have 1 or 3 channels") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const dptk::Image color =
        dptk::detail::sample_image(std::vector<float>{-1, 0, 1, nan, -0.5F, 0.5F}, {3, 1, 2});
    CHECK(color == dptk::Image{2, 1, 3, {0, 255, 64, 128, 0, 191}});
    CHECK(dptk::detail::sample_image(std::vector<float>{3, 3}, {1, 2, 1}).pixels ==
          std::vector<std::uint8_t>{0, 0});
    for (const dptk::Shape& shape : {dptk::Shape{4}, {2, 1, 2}, {4, 1, 1}})
        CHECK(dptk::detail::sample_image(std::vector<float>(4), shape).pixels.empty());
}
