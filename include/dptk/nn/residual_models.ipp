#pragma once

#include "dptk/nn/models.hpp"

#include <algorithm>
#include <array>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn {

namespace detail {

using dptk::detail::shape_text;
using dptk::detail::text;

/// Adds a convolution without bias, padded by half a kernel, and a batch norm.
[[nodiscard]] DPTK_INLINE Value conv_norm(Graph& g, Value x, std::string_view conv, std::string_view norm,
                                          Conv2d options) {
    options.padding = {options.kernel_size.height / 2, options.kernel_size.width / 2};
    options.bias = false;
    return g.batch_norm(norm, g.conv2d(conv, x, options));
}

/// Adds four stages with these numbers of blocks, `block(x, channels, stride)`, and a linear layer. Each
/// stage has twice the channels of the one before it, and images of half the height and width.
template <class Block>
void add_stages(Graph& g, Value x, const std::array<std::size_t, 4>& blocks, std::size_t classes,
                Block&& block) {
    std::size_t channels = 64;
    for (std::size_t stage = 0; stage < blocks.size(); ++stage, channels *= 2) {
        for (std::size_t i = 0; i < blocks[stage]; ++i) {
            const Graph::Scope names = g.scope(text("layer", stage + 1, '.', i));
            x = block(x, channels, stage > 0 && i == 0 ? 2 : 1);
        }
    }
    g.linear("fc", g.flatten(g.global_avg_pool(x)), {.out_features = classes});
}

/// Two convolutions of 3 x 3, or with a bottleneck, three of 1 x 1, 3 x 3 and 1 x 1; and the input added to
/// them.
[[nodiscard]] DPTK_INLINE Value residual_block(Graph& g, Value x, std::size_t channels, std::size_t stride,
                                               bool has_bottleneck) {
    const std::size_t out = has_bottleneck ? 4 * channels : channels;
    Value y = x;
    if (has_bottleneck) {
        y = g.relu(conv_norm(g, y, "conv1", "bn1", {.out_channels = channels, .kernel_size = 1}));
        y = g.relu(conv_norm(g, y, "conv2", "bn2", {.out_channels = channels, .stride = stride}));
        y = conv_norm(g, y, "conv3", "bn3", {.out_channels = out, .kernel_size = 1});
    } else {
        y = g.relu(conv_norm(g, y, "conv1", "bn1", {.out_channels = channels, .stride = stride}));
        y = conv_norm(g, y, "conv2", "bn2", {.out_channels = channels});
    }
    if (stride != 1 || g.shape(x)[0] != out)
        x = conv_norm(g, x, "downsample.0", "downsample.1",
                      {.out_channels = out, .kernel_size = 1, .stride = stride});
    return g.relu(g.add(y, x));
}

/// Split attention (https://arxiv.org/abs/2004.08955, section 3): two groups of channels, weighted by what
/// two small layers compute of their means, and added.
[[nodiscard]] DPTK_INLINE Value split_attention(Graph& g, Value x, std::size_t channels) {
    constexpr std::size_t radix = 2;
    x = g.relu(conv_norm(g, x, "conv", "bn0", {.out_channels = radix * channels, .groups = radix}));
    Value weights = g.radix_sum(g.global_avg_pool(x), {radix});
    const std::size_t hidden = std::max<std::size_t>(32, channels * radix / 4);
    weights = g.conv2d("fc1", weights, {.out_channels = hidden, .kernel_size = 1});
    weights = g.relu(g.batch_norm("bn1", weights));
    weights = g.conv2d("fc2", weights, {.out_channels = radix * channels, .kernel_size = 1});
    return g.radix_sum(g.multiply(x, g.softmax(weights, {radix})), {radix});
}

/// Convolutions of 1 x 1, 3 x 3 with split attention, and 1 x 1; and the input added to them. Images are made
/// smaller by pools.
[[nodiscard]] DPTK_INLINE Value split_attention_block(Graph& g, Value x, std::size_t channels,
                                                      std::size_t stride) {
    const std::size_t out = 4 * channels;
    Value y = g.relu(conv_norm(g, x, "conv1", "bn1", {.out_channels = channels, .kernel_size = 1}));
    {
        const Graph::Scope names = g.scope("conv2");
        y = split_attention(g, y, channels);
    }
    if (stride != 1) y = g.avg_pool(y, {.kernel_size = 3, .stride = stride, .padding = 1});
    y = conv_norm(g, y, "conv3", "bn3", {.out_channels = out, .kernel_size = 1});
    if (stride != 1 || g.shape(x)[0] != out) {
        if (stride != 1) x = g.avg_pool(x, {.kernel_size = stride});
        x = conv_norm(g, x, "downsample.1", "downsample.2", {.out_channels = out, .kernel_size = 1});
    }
    return g.relu(g.add(y, x));
}

}  // namespace detail

DPTK_INLINE Graph resnet(int layers, const ModelOptions& options) {
    struct Depth {
        int layers;
        std::array<std::size_t, 4> blocks;
        bool has_bottlenecks;
    };
    constexpr Depth depths[] = {{18, {2, 2, 2, 2}, false},
                                {34, {3, 4, 6, 3}, false},
                                {50, {3, 4, 6, 3}, true},
                                {101, {3, 4, 23, 3}, true},
                                {152, {3, 8, 36, 3}, true}};
    const auto* const depth = std::find_if(std::begin(depths), std::end(depths),
                                           [&](const Depth& one) { return one.layers == layers; });
    if (depth == std::end(depths))
        throw ArgumentError(detail::text("resnet: expected 18, 34, 50, 101 or 152 layers, found ", layers));

    Graph g(options.input);
    const bool is_large = options.stem == Stem::large;
    const Conv2d first{.out_channels = 64, .kernel_size = is_large ? 7U : 3U, .stride = is_large ? 2U : 1U};
    Value x = g.relu(detail::conv_norm(g, g.input(), "conv1", "bn1", first));
    if (is_large) x = g.max_pool(x, {.kernel_size = 3, .stride = 2, .padding = 1});
    detail::add_stages(g, x, depth->blocks, options.classes,
                       [&](Value in, std::size_t channels, std::size_t stride) {
                           return detail::residual_block(g, in, channels, stride, depth->has_bottlenecks);
                       });
    return g;
}

DPTK_INLINE Graph resnest50(const ModelOptions& options) {
    const Shape& input = options.input;
    if (input.size() != 3 || input[1] % 32 != 0 || input[2] % 32 != 0)
        throw ArgumentError(detail::text(
            "resnest50: expected an input {channels, height, width} with multiples of 32, found ",
            detail::shape_text(input)));
    Graph g(input);
    Value x = g.input();
    x = g.relu(detail::conv_norm(g, x, "conv1.0", "conv1.1", {.out_channels = 32, .stride = 2}));
    x = g.relu(detail::conv_norm(g, x, "conv1.3", "conv1.4", {.out_channels = 32}));
    x = g.relu(detail::conv_norm(g, x, "conv1.6", "bn1", {.out_channels = 64}));
    x = g.max_pool(x, {.kernel_size = 3, .stride = 2, .padding = 1});
    detail::add_stages(g, x, {3, 4, 6, 3}, options.classes,
                       [&](Value in, std::size_t channels, std::size_t stride) {
                           return detail::split_attention_block(g, in, channels, stride);
                       });
    return g;
}

DPTK_INLINE Graph mobilenet_v2(const ModelOptions& options) {
    Graph g(options.input);
    Value x = g.input();
    std::size_t feature = 0;
    const auto scope_of_feature = [&] { return detail::text("features.", feature++); };
    // A convolution, a batch norm and a ReLU6, which are a feature of their own.
    const auto add_feature = [&](const Conv2d& conv) {
        const Graph::Scope names = g.scope(scope_of_feature());
        x = g.relu6(detail::conv_norm(g, x, "0", "1", conv));
    };
    add_feature({.out_channels = 32, .stride = 2});
    struct Stage {
        std::size_t expansion, channels, blocks, stride;
    };
    constexpr Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    for (const Stage& stage : stages) {
        for (std::size_t block = 0; block < stage.blocks; ++block) {
            const Graph::Scope names = g.scope(scope_of_feature() + ".conv");
            const std::size_t stride = block == 0 ? stage.stride : 1;
            const std::size_t before = g.shape(x)[0], wide = before * stage.expansion;
            const Conv2d depthwise{.out_channels = wide, .stride = stride, .groups = wide};
            const Conv2d projection{.out_channels = stage.channels, .kernel_size = 1};
            Value y = x;
            if (stage.expansion == 1) {
                y = g.relu6(detail::conv_norm(g, y, "0.0", "0.1", depthwise));
                y = detail::conv_norm(g, y, "1", "2", projection);
            } else {
                y = g.relu6(detail::conv_norm(g, y, "0.0", "0.1", {.out_channels = wide, .kernel_size = 1}));
                y = g.relu6(detail::conv_norm(g, y, "1.0", "1.1", depthwise));
                y = detail::conv_norm(g, y, "2", "3", projection);
            }
            x = stride == 1 && before == stage.channels ? g.add(x, y) : y;
        }
    }
    add_feature({.out_channels = 1280, .kernel_size = 1});
    x = g.dropout(g.flatten(g.global_avg_pool(x)), options.dropout);
    g.linear("classifier.1", x, {.out_features = options.classes});
    return g;
}

}  // namespace DPTK_NAMESPACE::nn
