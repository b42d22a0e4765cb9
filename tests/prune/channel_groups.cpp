#include "dptk/prune/channel_groups.hpp"

#include <doctest/doctest.h>
#include <dptk/nn/custom_operation.hpp>
#include <dptk/nn/models.hpp>

#include <cmath>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"
#include "support/ranks.hpp"

using namespace dptk::nn;
using namespace dptk::nn::testing;
using Names = std::vector<std::string>;

namespace {

struct Cosine {
    static constexpr std::string_view name = "Cosine";
    template <std::floating_point T>
    static T value(T x) {
        return std::cos(x);
    }
    template <std::floating_point T>
    static T derivative(T x) {
        return -std::sin(x);
    }
};

/// Returns why all channels of "conv" remain in a graph that applies `add` to its output.
template <class Add>
std::string reason_after(Add add) {
    Graph g({3, 8, 8});
    const Value x = g.relu(g.conv2d("conv", g.input(), {.out_channels = 8, .padding = 1}));
    g.linear("fc", g.flatten(add(g, x)), {.out_features = 2});
    return group_of(channel_groups(g), g, "conv").reason_to_keep;
}

}  // namespace

TEST_CASE("the sums of a residual stage tie all of its convolutions that end a block") {
    const Graph graph = resnet(18, {.input = {3, 32, 32}, .classes = 10});
    const ChannelGroups channels = channel_groups(graph);
    const ChannelGroup& stage = group_of(channels, graph, "conv1");
    CHECK(convolutions_of(stage, graph) == Names{"conv1", "layer1.0.conv2", "layer1.1.conv2"});
    CHECK(stage.norms.size() == 3);
    CHECK(stage.channels == 64);
    CHECK(stage.is_prunable());
    CHECK(convolutions_of(group_of(channels, graph, "layer1.0.conv1"), graph) == Names{"layer1.0.conv1"});
    CHECK(convolutions_of(group_of(channels, graph, "layer3.0.downsample.0"), graph) ==
          Names{"layer3.0.conv2", "layer3.0.downsample.0", "layer3.1.conv2"});
    CHECK(group_of(channels, graph, "fc").reason_to_keep == "they are outputs of \"fc\" (Linear)");
    CHECK(channels.groups[channels.nodes[0].group].reason_to_keep == "they are the graph's input");
}

TEST_CASE("a depthwise convolution has the channels of its input") {
    const Graph graph = mobilenet_v2({.input = {3, 32, 32}, .classes = 10});
    const ChannelGroups channels = channel_groups(graph);
    const ChannelGroup& first = group_of(channels, graph, "features.0.0");
    CHECK(convolutions_of(first, graph) == Names{"features.0.0", "features.1.conv.0.0"});
    CHECK(first.norms.size() == 2);
    CHECK(convolutions_of(group_of(channels, graph, "features.2.conv.1.0"), graph) ==
          Names{"features.2.conv.0.0", "features.2.conv.1.0"});
    CHECK(convolutions_of(group_of(channels, graph, "features.3.conv.2"), graph) ==
          Names{"features.2.conv.2", "features.3.conv.2"});
}

TEST_CASE("Flatten makes consecutive elements of each channel") {
    const Graph graph = make_model("convnet_mnist", {.input = {1, 28, 28}, .classes = 10});
    const ChannelGroups channels = channel_groups(graph);
    const NodeChannels flat = channels.nodes[graph.nodes().size() - 2];
    CHECK(flat.repeat == 49);
    CHECK(convolutions_of(channels.groups[flat.group], graph) == Names{"layer2.0"});
    CHECK(channels.groups[flat.group].channels == 32);
}

TEST_CASE("channels pass through operations that compute 0 from 0") {
    CHECK(reason_after([](Graph&, Value x) { return x; }).empty());
    CHECK(reason_after([](Graph& g, Value x) {
              return g.dropout(g.silu(g.relu6(g.batch_norm("bn", g.avg_pool(g.max_pool(x, {}), {})))), 0.5);
          }).empty());
    CHECK(reason_after([](Graph& g, Value x) {
              return g.multiply(x, g.sigmoid(g.global_avg_pool(x)));  // a gate for each channel
          }).empty());
    CHECK(reason_after([](Graph& g, Value x) {
              return g.batch_norm("bn", g.sigmoid(x));  // whose weight and bias are 0
          }).empty());
}

TEST_CASE("channels remain if a channel of zeros would change the outputs, or if their order has a meaning") {
    const auto keeps = [](std::string_view reason, auto add) {
        const std::string found = reason_after(add);
        CAPTURE(found);
        CHECK(test::contains(found, reason));
    };
    keeps("they reach \"fc\" (Linear) through Sigmoid",
          [](Graph& g, Value x) { return g.max_pool(g.add(x, g.sigmoid(x)), {}); });
    keeps("(Softmax)", [](Graph& g, Value x) { return g.softmax(x); });
    keeps("(RadixSum)", [](Graph& g, Value x) { return g.radix_sum(x); });
    keeps("(Cosine)", [](Graph& g, Value x) { return g.add_operation(custom(Cosine{}), {x}); });
    keeps("they belong to \"grouped\" (Conv2d)",
          [](Graph& g, Value x) { return g.conv2d("grouped", x, {.out_channels = 8, .groups = 2}); });
    keeps("\"multiplied\" (Conv2d)",
          [](Graph& g, Value x) { return g.conv2d("multiplied", x, {.out_channels = 16, .groups = 8}); });
    keeps("(Multiply)", [](Graph& g, Value x) {
        return g.multiply(x, g.conv2d("gate", x, {.out_channels = 1, .kernel_size = 1}));
    });
    keeps("outputs of \"dense\" (Linear)", [](Graph& g, Value x) {
        return g.add(g.flatten(g.global_avg_pool(x)), g.linear("dense", g.flatten(x), {.out_features = 8}));
    });
    keeps("(Add)", [](Graph& g, Value x) {  // 512 elements: 64 of each channel, and 512 channels
        return g.add(g.flatten(x), g.linear("dense", g.flatten(x), {.out_features = 512}));
    });
}

TEST_CASE("channels that are added to the graph's input remain") {
    Graph g({3, 8, 8});
    const Value x = g.conv2d("conv", g.input(), {.out_channels = 8, .padding = 1});
    g.flatten(g.add(g.input(), g.conv2d("back", x, {.out_channels = 3, .padding = 1})));
    CHECK(group_of(channel_groups(g), g, "conv").is_prunable());
    CHECK(group_of(channel_groups(g), g, "back").reason_to_keep == "they are the graph's input");
}

TEST_CASE("the channels of the output remain") {
    const Graph graph = sequential({3, 8, 8}, {Conv2d{4}, ReLU{}, Conv2d{5}, GlobalAvgPool2d{}, Flatten{}});
    const ChannelGroups channels = channel_groups(graph);
    CHECK(group_of(channels, graph, "0").is_prunable());
    CHECK(group_of(channels, graph, "2").reason_to_keep == "the graph's output has them");
}
