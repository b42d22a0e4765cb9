#pragma once

#include "dptk/nn/residual_models.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn {

namespace detail {

using dptk::detail::shape_text;
using dptk::detail::text;

/// Two convolutions of 3 x 3, or with a bottleneck, three of 1 x 1, 3 x 3 and 1 x 1; and the input added to
/// them.
[[nodiscard]] DPTK_INLINE Value residual_block(Graph& g, Value x, std::size_t channels, std::size_t stride,
                                               bool has_bottleneck) {
    const auto conv = [&](std::string_view name, Value in, std::size_t out, std::size_t kernel,
                          std::size_t step) {
        return g.conv2d(name, in,
                        {.out_channels = out,
                         .kernel_size = kernel,
                         .stride = step,
                         .padding = kernel / 2,
                         .bias = false});
    };
    const std::size_t out = has_bottleneck ? 4 * channels : channels;
    Value y = has_bottleneck ? conv("conv1", x, channels, 1, 1) : conv("conv1", x, channels, 3, stride);
    y = g.relu(g.batch_norm("bn1", y));
    y = g.batch_norm("bn2", conv("conv2", y, channels, 3, has_bottleneck ? stride : 1));
    if (has_bottleneck) y = g.batch_norm("bn3", conv("conv3", g.relu(y), out, 1, 1));
    if (stride != 1 || g.shape(x)[0] != out)
        x = g.batch_norm("downsample.1", conv("downsample.0", x, out, 1, stride));
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
    const Conv2d first{.out_channels = 64,
                       .kernel_size = is_large ? 7U : 3U,
                       .stride = is_large ? 2U : 1U,
                       .padding = is_large ? 3U : 1U,
                       .bias = false};
    Value x = g.relu(g.batch_norm("bn1", g.conv2d("conv1", g.input(), first)));
    if (is_large) x = g.max_pool(x, {.kernel_size = 3, .stride = 2, .padding = 1});
    std::size_t channels = 64;
    for (std::size_t stage = 0; stage < 4; ++stage, channels *= 2) {
        for (std::size_t block = 0; block < depth->blocks[stage]; ++block) {
            const Graph::Scope names = g.scope(detail::text("layer", stage + 1, '.', block));
            x = detail::residual_block(g, x, channels, stage > 0 && block == 0 ? 2 : 1,
                                       depth->has_bottlenecks);
        }
    }
    g.linear("fc", g.flatten(g.global_avg_pool(x)), {.out_features = options.classes});
    return g;
}

namespace detail {

/// Split attention (https://arxiv.org/abs/2004.08955, section 3): two groups of channels, weighted by what
/// two small layers compute of their means, and added.
[[nodiscard]] DPTK_INLINE Value split_attention(Graph& g, Value x, std::size_t channels) {
    constexpr std::size_t radix = 2;
    x = g.conv2d(
        "conv", x,
        {.out_channels = radix * channels, .kernel_size = 3, .padding = 1, .groups = radix, .bias = false});
    x = g.relu(g.batch_norm("bn0", x));
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
    Value y = g.conv2d("conv1", x, {.out_channels = channels, .kernel_size = 1, .bias = false});
    y = g.relu(g.batch_norm("bn1", y));
    {
        const Graph::Scope names = g.scope("conv2");
        y = split_attention(g, y, channels);
    }
    if (stride != 1) y = g.avg_pool(y, {.kernel_size = 3, .stride = stride, .padding = 1});
    y = g.batch_norm("bn3", g.conv2d("conv3", y, {.out_channels = out, .kernel_size = 1, .bias = false}));
    if (stride != 1 || g.shape(x)[0] != out) {
        if (stride != 1) x = g.avg_pool(x, {.kernel_size = stride});
        x = g.conv2d("downsample.1", x, {.out_channels = out, .kernel_size = 1, .bias = false});
        x = g.batch_norm("downsample.2", x);
    }
    return g.relu(g.add(y, x));
}

}  // namespace detail

DPTK_INLINE Graph resnest50(const ModelOptions& options) {
    const Shape& input = options.input;
    if (input.size() != 3 || input[1] % 32 != 0 || input[2] % 32 != 0)
        throw ArgumentError(detail::text(
            "resnest50: expected an input {channels, height, width} with multiples of 32, found ",
            detail::shape_text(input)));
    Graph g(input);
    Value x = g.input();
    const auto conv = [&](std::string_view name, std::size_t channels, std::size_t stride) {
        x = g.conv2d(
            name, x,
            {.out_channels = channels, .kernel_size = 3, .stride = stride, .padding = 1, .bias = false});
    };
    const auto norm = [&](std::string_view name) { x = g.relu(g.batch_norm(name, x)); };
    conv("conv1.0", 32, 2);
    norm("conv1.1");
    conv("conv1.3", 32, 1);
    norm("conv1.4");
    conv("conv1.6", 64, 1);
    norm("bn1");
    x = g.max_pool(x, {.kernel_size = 3, .stride = 2, .padding = 1});
    constexpr std::size_t blocks[] = {3, 4, 6, 3};
    std::size_t channels = 64;
    for (std::size_t stage = 0; stage < 4; ++stage, channels *= 2) {
        for (std::size_t block = 0; block < blocks[stage]; ++block) {
            const Graph::Scope names = g.scope(detail::text("layer", stage + 1, '.', block));
            x = detail::split_attention_block(g, x, channels, stage > 0 && block == 0 ? 2 : 1);
        }
    }
    g.linear("fc", g.flatten(g.global_avg_pool(x)), {.out_features = options.classes});
    return g;
}

DPTK_INLINE Graph mobilenet_v2(const ModelOptions& options) {
    Graph g(options.input);
    std::size_t feature = 0;
    /// A convolution, a batch norm and perhaps a ReLU6, as layers `number`, `number` + 1.
    const auto conv = [&](std::string_view name, std::string_view norm, Value x, std::size_t channels,
                          std::size_t kernel, std::size_t stride, std::size_t groups) {
        return g.batch_norm(norm, g.conv2d(name, x,
                                           {.out_channels = channels,
                                            .kernel_size = kernel,
                                            .stride = stride,
                                            .padding = kernel / 2,
                                            .groups = groups,
                                            .bias = false}));
    };
    const auto scope_of_feature = [&] { return detail::text("features.", feature++); };
    Value x = [&] {
        const Graph::Scope names = g.scope(scope_of_feature());
        return g.relu6(conv("0", "1", g.input(), 32, 3, 2, 1));
    }();
    struct Stage {
        std::size_t expansion, channels, blocks, stride;
    };
    constexpr Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    for (const Stage& stage : stages) {
        for (std::size_t block = 0; block < stage.blocks; ++block) {
            const Graph::Scope names = g.scope(scope_of_feature() + ".conv");
            const std::size_t stride = block == 0 ? stage.stride : 1;
            const std::size_t before = g.shape(x)[0];
            const std::size_t wide = before * stage.expansion;
            Value y = x;
            if (stage.expansion == 1) {
                y = g.relu6(conv("0.0", "0.1", y, wide, 3, stride, wide));
                y = conv("1", "2", y, stage.channels, 1, 1, 1);
            } else {
                y = g.relu6(conv("0.0", "0.1", y, wide, 1, 1, 1));
                y = g.relu6(conv("1.0", "1.1", y, wide, 3, stride, wide));
                y = conv("2", "3", y, stage.channels, 1, 1, 1);
            }
            x = stride == 1 && before == stage.channels ? g.add(x, y) : y;
        }
    }
    {
        const Graph::Scope names = g.scope(scope_of_feature());
        x = g.relu6(conv("0", "1", x, 1280, 1, 1, 1));
    }
    x = g.dropout(g.flatten(g.global_avg_pool(x)), options.dropout);
    g.linear("classifier.1", x, {.out_features = options.classes});
    return g;
}

}  // namespace DPTK_NAMESPACE::nn
