/// Small graphs of each operation, in all its forms. All backends are compared with the reference backend and
/// with PyTorch on them, and the reference backend with finite differences. record_operations.py has the same
/// graphs in PyTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dptk/nn/graph.hpp"
#include "dptk/nn/network.hpp"
#include "support.hpp"

namespace DPTK_NAMESPACE::nn::testing {

struct OperationCase {
    std::string name;
    Graph graph;
};

[[nodiscard]] inline OperationCase operation_case(std::string name, Shape input,
                                                  const std::function<void(Graph&, Value)>& build) {
    Graph graph(std::move(input));
    build(graph, graph.input());
    return {std::move(name), std::move(graph)};
}

inline Value residual_block(Graph& g, Value x, std::size_t channels, std::size_t stride) {
    Value y = g.conv2d("conv1", x, {.out_channels = channels, .stride = stride, .padding = 1, .bias = false});
    y = g.relu(g.batch_norm("bn1", y));
    y = g.batch_norm("bn2", g.conv2d("conv2", y, {.out_channels = channels, .padding = 1, .bias = false}));
    if (stride != 1)
        x = g.conv2d("downsample", x,
                     {.out_channels = channels, .kernel_size = 1, .stride = stride, .bias = false});
    return g.relu(g.add(y, x));
}

[[nodiscard]] inline std::vector<OperationCase> operation_cases() {
    const auto make = operation_case;
    return {
        make("linear", {5}, [](Graph& g, Value x) { g.linear("a", x, {.out_features = 3}); }),
        make("linear_no_bias", {5},
             [](Graph& g, Value x) { g.linear("a", x, {.out_features = 3, .bias = false}); }),
        make("conv", {3, 5, 4},
             [](Graph& g, Value x) { g.conv2d("a", x, {.out_channels = 2, .padding = 1}); }),
        make("conv_rectangular", {4, 7, 5},
             [](Graph& g, Value x) {
                 g.conv2d("a", x,
                          {.out_channels = 6,
                           .kernel_size = {3, 2},
                           .stride = {2, 1},
                           .padding = {1, 2},
                           .dilation = {2, 3},
                           .groups = 2,
                           .bias = false});
             }),
        make("conv_depthwise", {3, 4, 5},
             [](Graph& g, Value x) {
                 g.conv2d("a", x, {.out_channels = 3, .stride = 2, .padding = 1, .groups = 3});
             }),
        make("conv_padding", {2, 4, 5},
             [](Graph& g, Value x) {
                 g.conv2d("a", x, {.out_channels = 2, .kernel_size = 2, .stride = 3, .padding = 3});
             }),
        make("batch_norm", {3, 3, 5}, [](Graph& g, Value x) { g.batch_norm("a", x); }),
        make("relu", {2, 3, 3}, [](Graph& g, Value x) { g.relu(x); }),
        make("relu6", {2, 3, 3},
             [](Graph& g, Value x) {
                 const Value y = g.add(x, x);
                 g.relu6(g.add(y, y));
             }),
        make("conv_norm_relu6", {2, 5, 6},
             [](Graph& g, Value x) {
                 g.relu6(g.batch_norm("b", g.conv2d("a", x, {.out_channels = 5, .bias = false})));
             }),
        make("sigmoid", {7}, [](Graph& g, Value x) { g.sigmoid(x); }),
        make("silu", {3, 4, 3}, [](Graph& g, Value x) { g.silu(g.conv2d("a", x, {.out_channels = 2})); }),
        make("softmax", {7}, [](Graph& g, Value x) { g.softmax(x); }),
        make("softmax_image", {4, 2, 3}, [](Graph& g, Value x) { g.softmax(x); }),
        make("split_attention", {6, 2, 3},
             [](Graph& g, Value x) {
                 const Value weights = g.softmax(g.global_avg_pool(x), {.radix = 2});
                 g.radix_sum(g.multiply(x, weights), {.radix = 2});
             }),
        make("max_pool", {3, 4, 5},
             [](Graph& g, Value x) {
                 g.max_pool(x, {3, 2, 1});
             }),
        make("max_pool_rectangular", {2, 5, 6},
             [](Graph& g, Value x) {
                 g.max_pool(x, {{2, 3}, {1, 2}});
             }),
        make("avg_pool", {2, 5, 6},
             [](Graph& g, Value x) {
                 g.avg_pool(x, {{3, 2}, 2, 1});
             }),
        make("global_avg_pool", {3, 4, 5}, [](Graph& g, Value x) { g.global_avg_pool(x); }),
        make("flatten", {3, 2, 2},
             [](Graph& g, Value x) { g.linear("a", g.flatten(x), {.out_features = 2}); }),
        make("flatten_last", {2, 3, 4},
             [](Graph& g, Value x) { g.flatten(g.conv2d("a", x, {.out_channels = 3})); }),
        make("gates", {3, 2, 2}, [](Graph& g, Value x) { g.multiply(x, g.sigmoid(g.global_avg_pool(x))); }),
        make("square", {3, 2, 2}, [](Graph& g, Value x) { g.multiply(x, x); }),
        make("double", {2, 4, 4}, [](Graph& g, Value x) { g.add(x, x); }),
        make("fan_out", {2, 4, 4},
             [](Graph& g, Value x) {
                 const Value y = g.conv2d("a", x, {.out_channels = 2, .padding = 1});
                 const Value z = g.sigmoid(y);
                 g.relu(g.add(g.add(y, z), g.multiply(z, y)));
             }),
        make("sums", {2, 4, 4},
             [](Graph& g, Value x) {
                 const Value y = g.sigmoid(x), z = g.sigmoid(y);
                 g.add(z, g.add(z, g.add(y, g.add(y, z))));
             }),
        make("residual", {4, 6, 6},
             [](Graph& g, Value x) {
                 for (const std::size_t block : {1U, 2U, 3U}) {
                     const Graph::Scope names = g.scope("block" + std::to_string(block));
                     x = residual_block(g, x, 6, block == 2 ? 1 : 2);
                 }
             }),
    };
}

/// Sets parameters to what record_operations.py uses: patterns, added to the ones of batch norms.
template <class Backend>
void set_case_parameters(Network<Backend>& net) {
    using T = typename Backend::Scalar;
    const std::vector<ParameterSpec> specs = net.graph().parameters();
    for (std::size_t i = 0; i < specs.size(); ++i) {
        std::vector<T> values =
            pattern_values<T>(static_cast<std::uint32_t>(i + 1), element_count(specs[i].shape));
        if (specs[i].initial == Initial::ones)
            for (T& value : values) value += 1;
        net.set_parameter_values(i, values);
    }
}

}  // namespace DPTK_NAMESPACE::nn::testing
