// docs/errors.md: what is compared between ranks.
#include <doctest/doctest.h>
#include <dptk/data/compare_ranks.hpp>
#include <dptk/data/host_dataset.hpp>
#include <dptk/train.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nn/support.hpp"
#include "support/agreed_errors.hpp"
#include "support/debug_mode.hpp"
#include "support/verb_table.hpp"

namespace {

using dptk::ProcessGroup;

dptk::nn::Network<dptk::nn::Reference<float>> linear(std::size_t inputs = 4) {
    return {dptk::nn::sequential({inputs}, {dptk::nn::Linear{3}}), 1};
}

/// Numbers with labels and names of classes. Each sample has its place in the dataset.
struct Numbers {
    std::vector<int> labels = {0, 1, 2, 0, 1, 2};
    std::vector<std::string> names = {"a", "b", "c"};
    std::vector<float> values = {0, 1, 2, 3, 4, 5};

    [[nodiscard]] std::size_t size() const { return labels.size(); }
    [[nodiscard]] std::pair<std::vector<float>, int> operator[](std::size_t i) const {
        return {std::vector<float>(4, values[i]), labels[i]};
    }
    [[nodiscard]] const std::vector<std::string>& class_names() const { return names; }
};

void fit(ProcessGroup& group, const Numbers& training, const Numbers& test,
         const dptk::TrainerOptions& options = {.epochs = 1}) {
    auto net = linear();
    dptk::Trainer(group, net, options).fit(training, test);
}

/// Differs between ranks: `other` on rank 1.
using Difference = std::function<void(ProcessGroup&, bool other)>;

const std::map<std::string, Difference>& differences() {
    static const std::map<std::string, Difference> all{
        {"options of `Trainer`, with the sampler's seed",
         [](ProcessGroup& group, bool other) { fit(group, {}, {}, {.seed = other ? 2U : 1U}); }},
        {"transforms and their parameters",
         [](ProcessGroup& group, bool other) {
             auto net = linear();
             const dptk::ImageTransforms one{dptk::Resize(8), dptk::RandomHorizontalFlip(0.5)};
             const dptk::ImageTransforms two{dptk::Resize(8), dptk::RandomHorizontalFlip(0.6)};
             dptk::Trainer(group, net, {.evaluation_transform = other ? two : one});
         }},
        {"number of samples",
         [](ProcessGroup& group, bool other) {
             Numbers numbers;
             if (other) numbers.labels.pop_back();
             auto net = linear();
             static_cast<void>(dptk::Trainer(group, net, {}).evaluate(numbers));
         }},
        {"names of classes",
         [](ProcessGroup& group, bool other) {
             Numbers numbers;
             if (other) numbers.names[1] = "x";
             fit(group, numbers, {});
         }},
        {"fingerprint of the training dataset",
         [](ProcessGroup& group, bool other) {
             Numbers numbers;
             if (other) numbers.labels[0] = 2;
             fit(group, numbers, {});
         }},
        {"fingerprint of the test dataset",
         [](ProcessGroup& group, bool other) {
             Numbers numbers;
             if (other) numbers.labels[0] = 2;
             fit(group, {}, numbers);
         }},
        {"`DistributedSampler` of a loop of your own: seed, options, epoch",
         [](ProcessGroup& group, bool other) {
             dptk::compare_samplers(group, dptk::DistributedSampler(6, group, {.seed = other ? 2U : 1U}));
         }},
        {"dataset of a loop of your own",
         [](ProcessGroup& group, bool other) {
             Numbers numbers;
             if (other) numbers.values[5] = 7;
             dptk::compare_datasets(group, numbers);
         }},
        {"dataset of a `HostDataset`",
         [](ProcessGroup& group, bool other) {
             Numbers numbers;
             if (other) numbers.values[0] = 7;
             dptk::HostDataset(numbers, group);
         }},
        {"parameters: number, names, shapes, dtypes",
         [](ProcessGroup& group, bool other) {
             auto net = linear(other ? 5 : 4);
             dptk::DistributedDataParallel(group, net);
         }},
        {"options of `DistributedDataParallel`",
         [](ProcessGroup& group, bool other) {
             auto net = linear();
             dptk::DistributedDataParallel(group, net, {.bucket_cap_mb = other ? 1.0 : 2.0});
         }},
        {"all samples of a dataset without a fingerprint of its own",
         [](ProcessGroup& group, bool other) {
             Numbers numbers;
             if (other) std::swap(numbers.labels[2], numbers.labels[3]);
             fit(group, numbers, {});
         }},
    };
    return all;
}

bool needs_debug(const std::string& what) {
    return what.starts_with("all samples");
}

}  // namespace

TEST_CASE("docs/errors.md: what is compared between ranks") {
    std::set<std::string> documented, tested;
    for (const test::TableRow& row : test::table_below("## What is compared between ranks", "errors.md"))
        documented.insert(row[0]);
    for (const auto& [what, differ] : differences()) tested.insert(what);
    CHECK(documented == tested);
    for (const auto& [what, differ] : differences()) {
        CAPTURE(what);
        for (const bool is_debug : {false, true}) {
            CAPTURE(is_debug);
            std::optional<test::DebugMode> debug;
            if (is_debug) debug.emplace();
            dptk::launch_threads(2, [&](ProcessGroup& group) {
                differ(group, false);
                if (needs_debug(what) && !is_debug) return differ(group, group.rank() == 1);
                std::string text;
                CHECK(test::throws<dptk::MismatchError>(
                    text, [&] { differ(group, group.rank() == 1); }, test::Agreed::yes));
                CHECK_MESSAGE(test::contains(text, "rank 1 has "), what, ": ", text);
            });
        }
    }
}

TEST_CASE("datasets with the same files, but other labels in the middle, differ") {
    dptk::launch_threads(2, [](ProcessGroup& group) {
        const std::size_t shape[] = {6, 2, 2};
        const dptk::ImageDataset images(
            std::vector<std::uint8_t>(24), shape,
            {0, 1, group.rank() == 1 ? std::uint8_t{2} : std::uint8_t{1}, 0, 1, 2});
        dptk::nn::Network<dptk::nn::Reference<float>> net(
            dptk::nn::sequential({1, 2, 2}, {dptk::nn::Flatten{}, dptk::nn::Linear{3}}), 1);
        dptk::Trainer trainer(group, net, {.epochs = 1});
        std::string text;
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { trainer.fit(images, images); }, test::Agreed::yes));
        CHECK(test::contains(text, "the ranks' training datasets differ: rank 1 has "));
    });
}

TEST_CASE("a dataset whose samples are random is compared by its size") {
    struct Random {
        [[nodiscard]] std::size_t size() const { return 6; }
        [[nodiscard]] std::pair<std::vector<float>, int> operator[](std::size_t i) const {
            return {std::vector<float>(4, static_cast<float>(++*calls)), static_cast<int>(i % 3)};
        }
        std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
    };
    dptk::launch_threads(2, [](ProcessGroup& group) {
        const Random random;
        if (group.rank() == 1) static_cast<void>(random[0]);
        auto net = linear();
        CHECK(dptk::Trainer(group, net, {.epochs = 1}).fit(random, random).step == 1);
    });
}
