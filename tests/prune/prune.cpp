#include "dptk/prune/prune.hpp"

#include <doctest/doctest.h>
#include <dptk/core/error.hpp>
#include <dptk/ddp.hpp>
#include <dptk/nn/models.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "dptk/prune/slim.hpp"
#include "support.hpp"
#include "support/ranks.hpp"

using namespace dptk::nn;
using namespace dptk::nn::testing;

namespace {

constexpr double tolerance = 1e-12;

/// Rectangular kernels, dilation, biases, SiLU, a product with Sigmoid, pools with padding, a residual sum
/// whose inputs both come from two operations, a depthwise convolution, and Linear after Flatten.
Graph all_kinds() {
    Graph g({3, 9, 11});
    Value x = g.conv2d("stem", g.input(), {.out_channels = 8, .kernel_size = {3, 5}, .padding = {1, 2}});
    x = g.silu(g.batch_norm("bn1", x));
    x = g.avg_pool(g.max_pool(x, {3, 1, 1}), {3, 1, 1});
    Value y = g.conv2d("depthwise", x, {.out_channels = 8, .padding = 1, .groups = 8});
    y = g.relu6(g.batch_norm("bn2", y));
    y = g.conv2d("back", y, {.out_channels = 8, .kernel_size = {1, 3}, .padding = {0, 1}});
    x = g.add(g.multiply(y, y), x);
    y = g.silu(g.conv2d("wide", x, {.out_channels = 10, .stride = 2, .dilation = {1, 2}}));
    const Value gate =
        g.sigmoid(g.conv2d("gate", g.global_avg_pool(y), {.out_channels = 10, .kernel_size = 1}));
    x = g.dropout(g.multiply(y, gate), 0.5);
    x = g.relu(g.linear("hidden", g.flatten(x), {.out_features = 7}));
    g.linear("fc", x, {.out_features = 4});
    return g;
}

std::vector<double> values_of(Net& net, const std::string& name) {
    const std::vector<ParameterSpec> specs = net.graph().parameters();
    for (std::size_t i = 0; i < specs.size(); ++i)
        if (specs[i].name == name) return net.parameter_values(i);
    throw std::runtime_error("no parameter " + name);
}

}  // namespace

TEST_CASE("a pruned network computes what the masked network computes") {
    for (const FilterScore score : {FilterScore::l1, FilterScore::l2, FilterScore::fpgm, FilterScore::slim}) {
        CHECK(error_of_pruning<Reference<double>>(all_kinds(), {.score = score}) < tolerance);
        CHECK(error_of_pruning<Reference<double>>(all_kinds(), {.score = score, .ratio = 0.99}) < tolerance);
    }
    CHECK(error_of_pruning<Reference<float>>(all_kinds(), {.multiple_of = 3}) < 1e-5);
}

TEST_CASE("a pruned graph has smaller convolutions and the same names") {
    const Graph graph = all_kinds();
    Net net(graph, 1);
    const Graph pruned = prune(graph, plan_pruning(net, {.ratio = 0.5, .skip = {"wide"}}));
    REQUIRE(pruned.nodes().size() == graph.nodes().size());
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
        CHECK(pruned.nodes()[i].name == graph.nodes()[i].name);
        CHECK(pruned.nodes()[i].operation.index() == graph.nodes()[i].operation.index());
    }
    const auto shape = [&](const std::string& name) {
        for (const ParameterSpec& parameter : pruned.parameters())
            if (parameter.name == name) return parameter.shape;
        return dptk::Shape{};
    };
    CHECK(shape("stem.weight") == dptk::Shape{4, 3, 3, 5});
    CHECK(shape("depthwise.weight") == dptk::Shape{4, 1, 3, 3});
    CHECK(shape("back.weight") == dptk::Shape{4, 4, 1, 3});
    CHECK(shape("back.bias") == dptk::Shape{4});
    CHECK(shape("wide.weight") == dptk::Shape{10, 4, 3, 3});
    CHECK(shape("hidden.weight") == dptk::Shape{7, 10 * 4 * 4});
    CHECK(pruned.buffers()[0].shape == dptk::Shape{4});
}

TEST_CASE("a pruned graph can be made from the numbers of filters") {
    const Graph graph = all_kinds();
    Net net(graph, 1);
    const Graph pruned = prune(graph, plan_pruning(net, {.ratio = 0.4}));
    const auto filters = [&](const std::string& conv) {
        for (const ParameterSpec& parameter : pruned.parameters())
            if (parameter.name == conv + ".weight") return parameter.shape[0];
        throw std::runtime_error("no operation " + conv);
    };
    CHECK(with_filters(graph, filters).summary() == pruned.summary());
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] {
        static_cast<void>(with_filters(
            graph, [&](const std::string& conv) { return conv == "back" ? std::size_t{3} : filters(conv); }));
    }));
}

TEST_CASE("masks zero filters, biases and norms of pruned channels, and nothing else") {
    const Graph graph = make_model("convnet_mnist", {.input = {1, 8, 8}, .classes = 3});
    Net net(graph, 1), masked(graph, 1);
    set_norms(net);
    set_norms(masked);
    const PruningPlan plan = plan_pruning(net, {.ratio = 0.25});
    apply_masks(masked, plan);
    const std::vector<std::size_t>& kept = plan.kept[plan.channels.nodes[1].group];
    REQUIRE(kept.size() == 12);
    for (const std::string name : {"layer1.0.weight", "layer1.0.bias", "layer1.1.weight", "layer1.1.bias"}) {
        CAPTURE(name);
        const std::vector<double> before = values_of(net, name), after = values_of(masked, name);
        for (std::size_t i = 0; i < after.size(); ++i) {
            const std::size_t channel = i / (after.size() / 16);
            CHECK(after[i] == (std::count(kept.begin(), kept.end(), channel) != 0 ? before[i] : 0));
        }
    }
    const Value norm{2};
    for (std::size_t i = 0; i < 16; ++i) {
        const bool remains = std::count(kept.begin(), kept.end(), i) != 0;
        CHECK(masked.statistics(norm).mean[i] == (remains ? net.statistics(norm).mean[i] : 0));
        CHECK(masked.statistics(norm).variance[i] == net.statistics(norm).variance[i]);
    }
    CHECK(values_of(masked, "fc.weight") == values_of(net, "fc.weight"));
    CHECK(values_of(masked, "fc.bias") == values_of(net, "fc.bias"));
}

TEST_CASE("after fine-tuning with masks on several ranks, ranks are equal and the pruned network is exact") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const Graph graph = all_kinds();
        Net net(graph, 1);
        set_norms(net);
        dptk::DistributedDataParallel ddp(group, net, {.ready = dptk::Ready::marked});
        dptk::SGD<double> sgd({.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3});
        dptk::Tensor<double> gradient({3, 4});
        const PruningPlan plan = plan_pruning(net, {.ratio = 0.5});
        apply_masks(net, plan);
        for (std::uint32_t step = 0; step < 3; ++step) {
            const auto stream = 10 * step + static_cast<std::uint32_t>(group.rank());
            const dptk::Tensor<double> input =
                pattern_tensor<double>(stream, with_batch(3, graph.input_shape()));
            ddp.begin_step(3);
            const auto output = net.forward(input).values();
            std::copy(output.begin(), output.end(), gradient.data());
            net.backward(gradient, [&](std::size_t parameter) { ddp.mark_ready(parameter); });
            ddp.synchronize();
            add_slim_gradients(graph, ddp.parameters(), 1e-3);
            sgd.step(ddp.parameters());
            apply_masks(net, plan);
        }
        std::vector<double> all;
        for (std::size_t i = 0; i < net.parameter_count(); ++i) {
            const std::vector<double> values = net.parameter_values(i);
            all.insert(all.end(), values.begin(), values.end());
        }
        std::vector<double> first = all;
        group.broadcast(first, 0);
        CHECK(first == all);
        Net pruned(prune(graph, plan), 2);
        copy_pruned_values(net, pruned, plan);
        net.set_mode(Mode::evaluate);
        pruned.set_mode(Mode::evaluate);
        const dptk::Tensor<double> input = pattern_tensor<double>(5, with_batch(2, graph.input_shape()), 4);
        CHECK(difference(pruned.forward(input).values(), net.forward(input).values()) < tolerance);
    });
}

TEST_CASE("a plan of another graph, or of the pruned one, is an error") {
    const Graph graph = make_model("convnet_mnist", {.input = {1, 8, 8}, .classes = 3});
    Net net(graph, 1);
    const PruningPlan plan = plan_pruning(net);
    Net pruned(prune(graph, plan), 1);
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { apply_masks(pruned, plan); }));
    CHECK(test::contains(text, "PruningPlan: expected a plan of this graph"));
    CHECK(test::throws<dptk::ArgumentError>(text, [&] {
        static_cast<void>(prune(resnet(18, {.input = {3, 32, 32}}), plan));
    }));
    Net other(make_model("convnet_mnist", {.input = {1, 8, 8}, .classes = 3}), 1);
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { copy_pruned_values(net, other, plan); }));
    CHECK(test::contains(text, "copy_pruned_values: expected a network of the graph that prune() returns"));
    CHECK_NOTHROW(copy_pruned_values(net, pruned, plan));
}

TEST_CASE("a pruned network can be pruned again") {
    Net net(all_kinds(), 1);
    const PruningPlan first = plan_pruning(net, {.ratio = 0.25});
    const Graph once = prune(net.graph(), first);
    CHECK(error_of_pruning<Reference<double>>(once, {.ratio = 0.5}) < tolerance);
}

TEST_CASE("a report has the channels that remain, reasons, parameters and FLOPs") {
    Graph g({1, 4, 4});
    Value x = g.conv2d("conv1", g.input(), {.out_channels = 4, .padding = 1, .bias = false});
    x = g.sigmoid(g.conv2d("conv2", g.relu(x), {.out_channels = 2, .padding = 1, .bias = false}));
    g.linear("fc", g.flatten(x), {.out_features = 2, .bias = false});
    Net net(g, 1);
    const PruningPlan plan = plan_pruning(net, {.ratio = 0.75});
    CHECK(cost_of(g) == NetworkCost{36 + 72 + 64, 16 * (36 + 72) + 64});
    CHECK(pruning_report(g, plan) ==
          "1 of 4 channels of conv1\n"
          "2 of 2 channels of conv2: they reach \"fc\" (Linear) through Sigmoid\n"
          "parameters: 172 before, 91 after (-47.1 %)\n"
          "FLOPs: 3584 before, 992 after (-72.3 %)\n");
}
