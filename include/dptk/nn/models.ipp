#pragma once

#include "dptk/nn/models.hpp"

#include <string>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE Graph mlp(const ModelOptions& options) {
    return sequential(options.input,
                      {Flatten{}, Linear{256}, ReLU{}, Linear{128}, ReLU{}, Linear{options.classes}});
}

DPTK_INLINE Graph lenet(const ModelOptions& options) {
    return sequential(options.input,
                      {Conv2d{.out_channels = 6, .kernel_size = 5, .padding = 2}, ReLU{}, MaxPool2d{2},
                       Conv2d{.out_channels = 16, .kernel_size = 5, .padding = 2}, ReLU{}, MaxPool2d{2},
                       Flatten{}, Linear{120}, ReLU{}, Linear{84}, ReLU{}, Linear{options.classes}});
}

DPTK_INLINE Graph convnet(const ModelOptions& options) {
    return sequential(options.input,
                      {Conv2d{.out_channels = 64, .kernel_size = 3, .padding = 1}, ReLU{}, MaxPool2d{2},
                       Conv2d{.out_channels = 128, .kernel_size = 3, .padding = 1}, ReLU{}, MaxPool2d{2},
                       Flatten{}, Linear{512}, ReLU{}, Linear{options.classes}});
}

DPTK_INLINE Graph convnet_mnist(const ModelOptions& options) {
    Graph g(options.input);
    Value x = g.input();
    for (const std::size_t block : {1U, 2U}) {
        const Graph::Scope names = g.scope(dptk::detail::text("layer", block));
        x = g.conv2d("0", x, {.out_channels = 16 * block, .kernel_size = 5, .padding = 2});
        x = g.max_pool(g.relu(g.batch_norm("1", x)), {.kernel_size = 2});
    }
    g.linear("fc", g.flatten(x), {.out_features = options.classes});
    return g;
}

namespace detail {

struct NamedModel {
    std::string_view name;
    Graph (*make)(const ModelOptions&);
};

template <int layers>
[[nodiscard]] Graph resnet_of(const ModelOptions& options) {
    return resnet(layers, options);
}

inline constexpr NamedModel models[] = {{"mlp", mlp},
                                        {"lenet", lenet},
                                        {"convnet", convnet},
                                        {"convnet_mnist", convnet_mnist},
                                        {"resnet18", resnet_of<18>},
                                        {"resnet34", resnet_of<34>},
                                        {"resnet50", resnet_of<50>},
                                        {"resnet101", resnet_of<101>},
                                        {"resnet152", resnet_of<152>},
                                        {"resnest50", resnest50},
                                        {"mobilenet_v2", mobilenet_v2}};

}  // namespace detail

DPTK_INLINE std::vector<std::string_view> model_names() {
    std::vector<std::string_view> names;
    for (const detail::NamedModel& model : detail::models) names.push_back(model.name);
    return names;
}

DPTK_INLINE Graph make_model(std::string_view name, const ModelOptions& options) {
    std::string names;
    for (const detail::NamedModel& model : detail::models) {
        if (model.name == name) return model.make(options);
        names += dptk::detail::text(names.empty() ? "" : ", ", model.name);
    }
    throw ArgumentError(dptk::detail::text("unknown model \"", name, "\": expected one of ", names));
}

}  // namespace DPTK_NAMESPACE::nn
