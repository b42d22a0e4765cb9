// A network with synchronized batch norms on several ranks, compared with one process on the concatenated
// batch.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>
#include <dptk/nn/reference/graph_network.hpp>

#include <cstddef>
#include <numeric>
#include <vector>

#include "nn/support.hpp"
#include "support/ranks.hpp"

using namespace dptk::nn;
using dptk::nn::testing::difference;
using dptk::nn::testing::pattern_tensor;

namespace {

constexpr std::size_t sample = 3 * 5 * 4;

Graph graph_of() {
    Graph g({3, 5, 4});
    Value x = g.relu(
        g.batch_norm("bn1", g.conv2d("conv1", g.input(), {.out_channels = 4, .padding = 1, .bias = false})));
    x = g.batch_norm("bn2", g.conv2d("conv2", x, {.out_channels = 3, .padding = 1, .bias = false}));
    g.sigmoid(g.add(x, g.input()));
    g.synchronize_batch_norms();
    return g;
}

/// The samples of each rank: some, none, one and two.
std::vector<std::size_t> batches_of(int ranks) {
    const std::vector<std::size_t> all{3, 0, 1, 2};
    return {all.begin(), all.begin() + ranks};
}

/// Returns the samples from `first` on.
dptk::Tensor<double> part_of(const dptk::Tensor<double>& all, std::size_t first, std::size_t count) {
    dptk::Shape shape = all.shape();
    shape[0] = count;
    dptk::Tensor<double> part(shape);
    std::copy_n(all.data() + first * sample, count * sample, part.data());
    return part;
}

}  // namespace

TEST_CASE("synchronized batch norms equal one process on the concatenated batch, also with an empty batch") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() > 4) return;
        const std::vector<std::size_t> batches = batches_of(group.size());
        const auto rank = static_cast<std::size_t>(group.rank());
        const std::size_t all = std::accumulate(batches.begin(), batches.end(), std::size_t{0});
        const std::size_t first =
            std::accumulate(batches.begin(), batches.begin() + group.rank(), std::size_t{0});
        GraphNetwork<double> alone(graph_of(), 1), net(graph_of(), 1);
        net.set_group(group);
        for (std::uint32_t step = 0; step < 3; ++step) {
            const auto input = pattern_tensor<double>(2 * step + 1, {all, 3, 5, 4}, 4);
            const auto gradient = pattern_tensor<double>(2 * step + 2, {all, 3, 5, 4}, 4);
            const auto& expected = alone.forward(input);
            alone.backward(gradient, [](std::size_t) {});
            const auto& output = net.forward(part_of(input, first, batches[rank]));
            net.backward(part_of(gradient, first, batches[rank]), [](std::size_t) {});
            CHECK(difference(output.values(), expected.values().subspan(first * sample, output.size())) <
                  1e-12);
            CHECK(difference(net.input_gradient().values(),
                             alone.input_gradient().values().subspan(first * sample, output.size())) < 1e-12);
            for (std::size_t i = 0; i < net.parameter_count(); ++i) {
                std::vector<double> sum(net.parameter_gradient(i).begin(), net.parameter_gradient(i).end());
                group.all_reduce(sum);
                CHECK(difference(sum, alone.parameter_gradient(i)) < 1e-12);
            }
            for (const Value norm : {Value{2}, Value{5}}) {
                for (const std::size_t which : {0U, 1U})
                    CHECK(difference(net.statistics(norm, which), alone.statistics(norm, which)) < 1e-12);
            }
        }
    });
}
