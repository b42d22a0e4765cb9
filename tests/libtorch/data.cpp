// Tests libtorch's data loaders with dptk's sampler.
#include "libtorch/doctest_and_torch.hpp"

#include <dptk/adapters/libtorch_data.hpp>

#include <sstream>
#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace {

/// A group of three ranks, in which this is rank 1.
struct Replica {
    [[nodiscard]] int rank() const { return 1; }
    [[nodiscard]] int size() const { return 3; }
};

/// A dataset in which sample i is i.
struct Numbers : torch::data::datasets::Dataset<Numbers> {
    torch::data::Example<> get(std::size_t index) override {
        return {torch::full({1}, static_cast<float>(index)), torch::zeros({1})};
    }
    [[nodiscard]] torch::optional<std::size_t> size() const override { return 10; }
};

template <class Loader>
std::vector<std::size_t> samples_of(Loader& loader) {
    std::vector<std::size_t> all;
    for (const auto& batch : loader)
        for (const auto& example : batch)
            all.push_back(static_cast<std::size_t>(example.data.template item<float>()));
    return all;
}

}  // namespace

TEST_CASE(
    "a data loader yields the indices of Python's DistributedSampler, epoch by epoch, again when asked "
    "again") {
    dptk::libtorch::DistributedSampler sampler(10, Replica{});
    auto loader = torch::data::make_data_loader(Numbers(), sampler, torch::data::DataLoaderOptions(3));
    CHECK(samples_of(*loader) == std::vector<std::size_t>{1, 3, 8, 4});
    CHECK(samples_of(*loader) == std::vector<std::size_t>{1, 3, 8, 4});
    sampler.set_epoch(1);
    CHECK(samples_of(*loader) == std::vector<std::size_t>{6, 0, 3, 5});
}

TEST_CASE("workers of a data loader share the order") {
    dptk::libtorch::DistributedSampler sampler(10, Replica{}, {.shuffle = false});
    auto loader = torch::data::make_data_loader(
        Numbers(), sampler, torch::data::DataLoaderOptions(1).workers(2).enforce_ordering(true));
    CHECK(samples_of(*loader) == std::vector<std::size_t>{1, 4, 7, 0});
}

TEST_CASE("a sampler continues from a state in the middle of an epoch") {
    dptk::libtorch::DistributedSampler before(10, Replica{});
    before.set_epoch(1);
    CHECK(*before.next(3) == std::vector<std::size_t>{6, 0, 3});
    std::stringstream file;
    torch::serialize::OutputArchive out;
    before.save(out);
    out.save_to(file);

    dptk::libtorch::DistributedSampler after(10, Replica{});
    torch::serialize::InputArchive in;
    in.load_from(file);
    after.load(in);
    CHECK(*after.next(3) == std::vector<std::size_t>{5});
    CHECK(!after.next(3).has_value());

    dptk::libtorch::DistributedSampler other(4, Replica{});
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { other.load(in); }));
    CHECK(test::contains(text, "expected a saved position of at most 2 indices, got 3"));
}

TEST_CASE("a dataset that has changed its size is an error") {
    dptk::libtorch::DistributedSampler sampler(10, Replica{});
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { sampler.reset(11); }));
    CHECK(test::contains(text, "had 10 samples at construction, and has 11 now"));
}
