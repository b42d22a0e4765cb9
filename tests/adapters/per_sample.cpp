#include <dptk/adapters/per_sample.hpp>

#include <algorithm>

#include "adapters/support.hpp"

namespace {

using Blocks = std::vector<std::vector<double>>;
using Vectors = std::vector<std::vector<double>>;

/// Returns the text of the exception that fn throws.
template <class Fn>
std::string problem(Fn&& fn) {
    std::string text;
    return test::throws<dptk::ArgumentError>(text, fn) ? text : "none";
}

}  // namespace

TEST_CASE("gradients of samples become their mean") {
    Vectors values = {{0, 0}, {0}};
    dptk::PerSampleGradients<double> means(values);
    means.reduce(Blocks{{1, 2, 3, 4, 5, 6}, {1, 2, 6}}, 3);
    CHECK(means[0][0] == doctest::Approx(3));
    CHECK(means[0][1] == doctest::Approx(4));
    CHECK(means[1][0] == doctest::Approx(3));
    means.reduce(Blocks{{}, {}}, 0);
    CHECK(means[0][1] == 0);
    CHECK(test::described(dptk::ParameterSource(means)) == test::Lines{"[0] [2] f64", "[1] [1] f64"});
    CHECK(dptk::ParameterSource(means).collect()[1].value == values[1].data());
}

TEST_CASE("a sample's norm is over all parameters, and factors clip it") {
    Vectors values = {{0, 0}, {0}};
    dptk::PerSampleGradients<double> means(values);
    const Blocks blocks = {{3, 0, 0, 0}, {4, 2}};
    const std::vector<double> norms = means.norms(blocks, 2);
    CHECK(norms[0] == doctest::Approx(5));
    CHECK(norms[1] == doctest::Approx(2));
    std::vector<double> factors;
    for (const double norm : norms) factors.push_back(std::min(1.0, 2.5 / norm));
    means.reduce(blocks, 2, factors);
    CHECK(means[0][0] == doctest::Approx(0.75));
    CHECK(means[1][0] == doctest::Approx(2));
}

TEST_CASE("blocks that do not fit are errors that name the block") {
    Vectors values = {{0, 0}, {0}};
    dptk::PerSampleGradients<double> means(values);
    CHECK(problem([&] { means.reduce(Blocks{{1, 2}}, 1); }) == "expected 2 blocks, one per parameter, got 1");
    CHECK(problem([&] {
              means.reduce(Blocks{{1, 2}, {1}, {1}}, 1);
          }) == "expected 2 blocks, one per parameter, got more");
    CHECK(problem([&] {
              means.reduce(Blocks{{1, 2}, {1, 2}}, 1);
          }) == "the block of parameter [1]: expected 1 x 1 elements, got 2");
    CHECK(problem([&] {
              means.reduce(Blocks{{1, 2}, {1}}, 1, std::vector<double>(2));
          }) == "expected 1 factors, one per sample, got 2");
}

TEST_CASE("means may be of another type than the values") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> values(2);
        dptk::PerSampleGradients<double> means(values);
        dptk::DistributedDataParallel ddp(group, means);
        means.reduce(Blocks{{0.1 + group.rank(), 2}}, 1);
        ddp.synchronize();
        CHECK(means[0][0] == doctest::Approx(0.1 + (group.size() - 1) / 2.0).epsilon(1e-15));
    });
}

TEST_CASE("over ranks, the mean is over all samples, however many each rank has") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto samples = static_cast<std::size_t>(group.rank());  // none on rank 0
        Vectors values = {{1.0 + group.rank()}};
        dptk::PerSampleGradients<double> means(values);
        dptk::DistributedDataParallel ddp(group, means);
        CHECK(values[0][0] == 1);
        Blocks blocks = {std::vector<double>(samples, 10.0 * group.rank())};
        means.reduce(blocks, samples);
        ddp.synchronize(samples);
        double sum = 0, count = 0;
        for (int rank = 1; rank < group.size(); ++rank) {
            sum += 10.0 * rank * rank;
            count += rank;
        }
        CHECK(means[0][0] == doctest::Approx(count == 0 ? 0 : sum / count));
    });
}
