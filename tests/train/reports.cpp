// Tests of the outputs of an evaluation.
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

std::string text_of_file(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

}  // namespace

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
            CHECK(trainer.evaluate(repeated_digits()).samples == 90);
            CHECK(trainer.step_times().has_value() == (shards == 0));
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
