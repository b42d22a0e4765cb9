// A network with synchronized batch norms on several ranks, compared with one process on the concatenated
// batch.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>
#include <dptk/nn/network.hpp>
#include <dptk/nn/reference/backend.hpp>
#ifdef DPTK_WITH_ONEDNN
#include <dptk/nn/cpu/backend.hpp>
#endif

#include <algorithm>
#include <cmath>
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
template <class T>
dptk::Tensor<T> part_of(const dptk::Tensor<T>& all, std::size_t first, std::size_t count) {
    dptk::Shape shape = all.shape();
    shape[0] = count;
    dptk::Tensor<T> part(shape);
    std::copy_n(all.data() + first * sample, count * sample, part.data());
    return part;
}

template <class Backend>
void check_on_ranks(dptk::ProcessGroup& group, double tolerance) {
    using T = typename Backend::Scalar;
    const std::vector<std::size_t> batches = batches_of(group.size());
    const auto rank = static_cast<std::size_t>(group.rank());
    const std::size_t all = std::accumulate(batches.begin(), batches.end(), std::size_t{0});
    const std::size_t first =
        std::accumulate(batches.begin(), batches.begin() + group.rank(), std::size_t{0});
    Network<Backend> alone(graph_of(), 1), net(graph_of(), 1);
    net.set_group(group);
    for (std::uint32_t step = 0; step < 3; ++step) {
        const auto input = pattern_tensor<T>(2 * step + 1, {all, 3, 5, 4}, 4);
        const auto gradient = pattern_tensor<T>(2 * step + 2, {all, 3, 5, 4}, 4);
        const auto& expected = alone.forward(input);
        alone.backward(gradient, InputGradient::compute);
        const auto own_input = part_of(input, first, batches[rank]);
        const auto& output = net.forward(own_input);
        net.backward(part_of(gradient, first, batches[rank]), InputGradient::compute);
        CHECK(difference(output.values(), expected.values().subspan(first * sample, output.size())) <
              tolerance);
        CHECK(difference(net.input_gradient().values(),
                         alone.input_gradient().values().subspan(first * sample, output.size())) < tolerance);
        for (std::size_t i = 0; i < net.parameter_count(); ++i) {
            std::vector<T> sum = net.parameter_gradient(i);
            group.all_reduce(sum);
            CHECK(difference(sum, alone.parameter_gradient(i)) < tolerance);
        }
        for (const Value norm : {Value{2}, Value{5}}) {
            CHECK(difference(net.statistics(norm).mean, alone.statistics(norm).mean) < tolerance);
            CHECK(difference(net.statistics(norm).variance, alone.statistics(norm).variance) < tolerance);
        }
    }
}

}  // namespace

TEST_CASE("synchronized batch norms equal one process on the concatenated batch, also with an empty batch") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() > 4) return;
        check_on_ranks<Reference<double>>(group, 1e-12);
#ifdef DPTK_WITH_ONEDNN
        check_on_ranks<Cpu>(group, 1e-5);
#endif
    });
}

TEST_CASE("DistributedDataParallel sends rank 0's running statistics at the beginning of each step") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Graph graph({2, 3, 3});
        const Value norm = graph.batch_norm("bn", graph.input());
        Network<Reference<float>> net(graph, 1);
        dptk::DistributedDataParallel ddp(group, net);
        for (std::size_t step = 0; step < 3; ++step) {
            const std::vector<float> own{static_cast<float>(10 * step) + static_cast<float>(group.rank()), 2};
            net.statistics(norm).mean = own;
            net.statistics(norm).batch_count = group.rank();
            ddp.begin_step(1);
            CHECK(net.statistics(norm).mean == std::vector<float>{static_cast<float>(10 * step), 2});
            CHECK(net.statistics(norm).batch_count == 0);
            ddp.synchronize();
        }
    });
}

namespace {

/// The mean loss of a rank's samples, of which DistributedDataParallel averages the gradients by sample
/// counts.
void check_weighted(dptk::ProcessGroup& group) {
    const std::vector<std::size_t> batches{3, 0, 1, 2};
    const std::size_t own = batches.at(static_cast<std::size_t>(group.rank()));
    std::size_t all = 0, first = 0;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(group.size()); ++rank) {
        if (rank == static_cast<std::size_t>(group.rank())) first = all;
        all += batches[rank];
    }
    Graph graph({2, 3, 3});
    // The first norm's input depends on no parameter.
    Value x = graph.batch_norm("bn0", graph.input());
    x = graph.relu(graph.batch_norm("bn1", graph.conv2d("conv", x, {.out_channels = 3})));
    graph.linear("fc", graph.flatten(x), {.out_features = 2});
    graph.synchronize_batch_norms();
    Network<Reference<double>> alone(graph, 1), net(graph, 1);
    net.set_group(group, {.weighs_by_samples = true});
    dptk::DistributedDataParallel ddp(group, net);
    const auto input = pattern_tensor<double>(1, {all, 2, 3, 3}, 4);
    dptk::Tensor<double> part(Shape{own, 2, 3, 3}), gradient(Shape{own, 2}), whole(Shape{all, 2});
    std::copy_n(input.data() + first * 18, own * 18, part.data());
    const auto direction = pattern_tensor<double>(2, {all, 2});
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = direction[i] / static_cast<double>(all);
    for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = direction[first * 2 + i] / static_cast<double>(own);
    alone.forward(input);
    alone.backward(whole);
    ddp.begin_step(own);
    net.forward(part);
    net.backward(gradient);
    ddp.synchronize();
    for (std::size_t i = 0; i < net.parameter_count(); ++i) {
        CAPTURE(i);
        double largest = 1e-3;  // the bias before a norm has no gradient
        for (const double value : alone.parameter_gradient(i)) largest = std::max(largest, std::abs(value));
        const std::vector<double> found = net.parameter_gradient(i), expected = alone.parameter_gradient(i);
        for (std::size_t e = 0; e < found.size(); ++e)
            CHECK(std::abs(found[e] - expected[e]) < 1e-11 * largest);
    }
}

}  // namespace

TEST_CASE("synchronized batch norms have the gradients of one process if DDP averages by sample counts") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() <= 4) check_weighted(group);
    });
}

TEST_CASE("a batch that is empty on all ranks does not change the running statistics") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Graph graph({2, 3, 3});
        const Value norm = graph.batch_norm("bn", graph.input(), {.is_synchronized = true});
        Network<Reference<float>> net(graph, 1);
        net.set_group(group);
        net.forward(dptk::Tensor<float>(Shape{0, 2, 3, 3}));
        CHECK(net.statistics(norm).variance == std::vector<float>{1, 1});
        CHECK(net.statistics(norm).batch_count == 0);
    });
}
