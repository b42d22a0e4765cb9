#include "dptk/prune/pruning_plan.hpp"

#include <doctest/doctest.h>
#include <dptk/core/error.hpp>
#include <dptk/nn/models.hpp>

#include <limits>
#include <string>
#include <vector>

#include "support.hpp"
#include "support/ranks.hpp"

using namespace dptk::nn;
using namespace dptk::nn::testing;
using Channels = std::vector<std::size_t>;

namespace {

/// Two convolutions with batch norms, and one without.
Graph three_convolutions() {
    Graph g({1, 6, 6});
    Value x =
        g.relu(g.batch_norm("bn1", g.conv2d("conv1", g.input(), {.out_channels = 4, .kernel_size = 1})));
    x = g.relu(g.batch_norm("bn2", g.conv2d("conv2", x, {.out_channels = 6, .kernel_size = 1})));
    x = g.conv2d("conv3", x, {.out_channels = 5, .kernel_size = 1});
    g.linear("fc", g.flatten(x), {.out_features = 2});
    return g;
}

void set(Net& net, const std::string& name, const std::vector<double>& values) {
    const std::vector<ParameterSpec> specs = net.graph().parameters();
    for (std::size_t i = 0; i < specs.size(); ++i)
        if (specs[i].name == name) return net.set_parameter_values(i, values);
    FAIL("no parameter ", name);
}

const Channels& kept(const PruningPlan& plan, const Graph& graph, const std::string& name) {
    for (std::size_t i = 0; i < graph.nodes().size(); ++i)
        if (graph.nodes()[i].name == name) return plan.kept[plan.channels.nodes[i].group];
    throw std::runtime_error("no operation " + name);
}

}  // namespace

TEST_CASE("the channels with the largest scores remain, and of equal ones those with the lowest indices") {
    const Graph graph = three_convolutions();
    Net net(graph, 1);
    set(net, "conv1.weight", {1, -3, 2, 2});
    CHECK(kept(plan_pruning(net, {.ratio = 0.25}), graph, "conv1") == Channels{1, 2, 3});
    CHECK(kept(plan_pruning(net, {.ratio = 0.5}), graph, "conv1") == Channels{1, 2});
    CHECK(kept(plan_pruning(net, {.ratio = 0.99}), graph, "conv1") == Channels{1});
    CHECK(kept(plan_pruning(net, {.ratio = 0}), graph, "conv1") == Channels{0, 1, 2, 3});
    // Distances: 4 + 1 + 1, 4 + 5 + 5, 1 + 5, 1 + 5.
    CHECK(kept(plan_pruning(net, {.score = FilterScore::fpgm}), graph, "conv1") == Channels{0, 1});
    CHECK(kept(plan_pruning(net, {.ratio = 0.99}), graph, "fc") == Channels{0, 1});
}

TEST_CASE("scores are summed over the convolutions of a group") {
    Graph g({1, 4, 4});
    const Conv2d options{.out_channels = 3, .kernel_size = 1, .bias = false};
    g.linear("fc", g.flatten(g.add(g.conv2d("a", g.input(), options), g.conv2d("b", g.input(), options))),
             {2});
    Net net(g, 1);
    set(net, "a.weight", {5, 1, 2});
    set(net, "b.weight", {1, 1, 5});
    CHECK(kept(plan_pruning(net, {.ratio = 0.67}), g, "a") == Channels{2});
    CHECK(kept(plan_pruning(net, {.ratio = 0.34}), g, "b") == Channels{0, 2});
}

TEST_CASE("a minimum and a multiple of channels remain") {
    const Graph graph = three_convolutions();
    Net net(graph, 1);
    const auto counts = [&](const PruningOptions& options) {
        const PruningPlan plan = plan_pruning(net, options);
        return Channels{kept(plan, graph, "conv1").size(), kept(plan, graph, "conv2").size(),
                        kept(plan, graph, "conv3").size()};
    };
    CHECK(counts({.ratio = 0.5}) == Channels{2, 3, 3});
    CHECK(counts({.ratio = 0.99}) == Channels{1, 1, 1});
    CHECK(counts({.ratio = 0.8, .min_channels = 3}) == Channels{3, 3, 3});
    CHECK(counts({.ratio = 0.5, .min_channels = 100}) == Channels{4, 6, 5});
    CHECK(counts({.ratio = 0.5, .multiple_of = 4}) == Channels{4, 4, 4});
    CHECK(counts({.ratio = 0.1, .multiple_of = 8}) == Channels{4, 6, 5});
}

TEST_CASE("one threshold for the batch norms of all groups") {
    const Graph graph = three_convolutions();
    Net net(graph, 1);
    set(net, "bn1.weight", {0.1, -0.9, 0.8, 0.7});
    set(net, "bn2.weight", {0.2, 0.6, 0.3, 0.3, -0.05, 0.3});
    PruningPlan plan =
        plan_pruning(net, {.score = FilterScore::slim, .ratio = 0.5, .scope = PruningScope::network});
    CHECK(kept(plan, graph, "conv1") == Channels{1, 2, 3});
    CHECK(kept(plan, graph, "conv2") == Channels{1, 2});  // of three equal ones, the first
    CHECK(kept(plan, graph, "conv3").size() == 5);
    CHECK(group_of(plan.channels, graph, "conv3").reason_to_keep == "they have no batch norm");
    plan = plan_pruning(net, {.score = FilterScore::slim, .ratio = 0.95, .scope = PruningScope::network});
    CHECK(kept(plan, graph, "conv1") == Channels{1});
    CHECK(kept(plan, graph, "conv2") == Channels{1});  // at least one
    plan = plan_pruning(net, {.score = FilterScore::slim, .ratio = 0.5});
    CHECK(kept(plan, graph, "conv1") == Channels{1, 2});
    CHECK(kept(plan, graph, "conv2") == Channels{1, 2, 3});
}

TEST_CASE("groups of convolutions that are skipped keep their channels") {
    const Graph graph = resnet(18, {.input = {3, 32, 32}, .classes = 10});
    Network<dptk::nn::Reference<float>> net(graph, 1);
    const PruningPlan plan = plan_pruning(net, {.skip = {"conv1", "layer3.*.conv2", "*downsample*"}});
    const auto size = [&](const std::string& name) { return kept(plan, graph, name).size(); };
    CHECK(size("layer1.1.conv2") == 64);  // is added to conv1's output
    CHECK(size("layer1.1.conv1") == 32);
    CHECK(size("layer2.0.conv2") == 128);
    CHECK(size("layer3.1.conv2") == 256);
    CHECK(size("layer4.1.conv1") == 256);
    CHECK(group_of(plan.channels, graph, "layer1.0.conv2").reason_to_keep == "\"conv1\" is skipped");
}

TEST_CASE("equal networks have equal plans") {
    const Graph graph = resnet(18, {.input = {3, 32, 32}, .classes = 10});
    Network<dptk::nn::Reference<float>> a(graph, 3), b(graph, 3), c(graph, 4);
    const PruningOptions options{.score = FilterScore::l2, .ratio = 0.3};
    CHECK(plan_pruning(a, options) == plan_pruning(b, options));
    CHECK_FALSE(plan_pruning(a, options) == plan_pruning(c, options));
}

TEST_CASE("options that cannot be satisfied are errors that say what to do") {
    const Graph graph = three_convolutions();
    std::string text;
    const auto fails = [&](const std::string& expected, const Graph& structure,
                           const PruningOptions& options) {
        Net net(structure, 1);
        CHECK(
            test::throws<dptk::ArgumentError>(text, [&] { static_cast<void>(plan_pruning(net, options)); }));
        CHECK(text == expected);
    };
    fails("PruningOptions: expected a ratio in [0, 1), found 1", graph, {.ratio = 1});
    fails("PruningOptions: expected a ratio in [0, 1), found -0.1", graph, {.ratio = -0.1});
    fails("PruningOptions: expected a ratio in [0, 1), found nan", graph,
          {.ratio = std::numeric_limits<double>::quiet_NaN()});
    fails("PruningOptions: expected min_channels above 0, found 0", graph, {.min_channels = 0});
    fails("PruningOptions: expected multiple_of above 0, found 0", graph, {.multiple_of = 0});
    fails("PruningOptions: expected FilterScore::slim for PruningScope::network, found another score", graph,
          {.scope = PruningScope::network});
    fails("PruningOptions: expected names of Conv2d in skip, found \"cov2\": the closest name is \"conv2\"",
          graph, {.skip = {"conv1", "cov2"}});
    fails("PruningOptions: expected names of Conv2d in skip, found \"fc\": the closest name is \"conv1\"",
          graph, {.skip = {"fc"}});
    fails("plan_pruning: expected a graph with channels that may be pruned, found none: there is no Conv2d",
          make_model("mlp", {.input = {1, 4, 4}, .classes = 3}), {.skip = {"fc"}});
    fails(
        "plan_pruning: expected a graph with channels that may be pruned, found none: the graph's output "
        "has them",
        sequential({1, 4, 4}, {Conv2d{2}}), {});
    fails(
        "plan_pruning: expected a graph with channels that may be pruned, found none: \"conv1\" is skipped, "
        "\"conv2\" is skipped, \"conv3\" is skipped",
        graph, {.skip = {"*"}});
}

TEST_CASE("a weight that is not finite is an error") {
    Net net(three_convolutions(), 1);
    set(net, "conv1.weight", {1, std::numeric_limits<double>::infinity(), 2, 2});
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { static_cast<void>(plan_pruning(net)); }));
    CHECK(text ==
          "plan_pruning: expected finite weights of \"conv1\" (Conv2d), found inf as score of channel 1");
}
