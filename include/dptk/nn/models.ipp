#pragma once

#include "dptk/nn/models.hpp"

#include <string>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE std::vector<LayerSpec> mlp(std::size_t classes) {
    return {Flatten{}, Linear{.out_features = 256},    ReLU{}, Linear{.out_features = 128},
            ReLU{},    Linear{.out_features = classes}};
}

DPTK_INLINE std::vector<LayerSpec> lenet(std::size_t classes) {
    return {Conv2d{.out_channels = 6, .kernel_size = 5, .padding = 2},
            ReLU{},
            MaxPool2d{.kernel_size = 2},
            Conv2d{.out_channels = 16, .kernel_size = 5, .padding = 2},
            ReLU{},
            MaxPool2d{.kernel_size = 2},
            Flatten{},
            Linear{.out_features = 120},
            ReLU{},
            Linear{.out_features = 84},
            ReLU{},
            Linear{.out_features = classes}};
}

DPTK_INLINE std::vector<LayerSpec> convnet(std::size_t classes) {
    return {Conv2d{.out_channels = 64, .kernel_size = 3, .padding = 1},
            ReLU{},
            MaxPool2d{.kernel_size = 2},
            Conv2d{.out_channels = 128, .kernel_size = 3, .padding = 1},
            ReLU{},
            MaxPool2d{.kernel_size = 2},
            Flatten{},
            Linear{.out_features = 512},
            ReLU{},
            Linear{.out_features = classes}};
}

DPTK_INLINE std::vector<LayerSpec> make_model(std::string_view name, std::size_t classes) {
    std::string names;
    for (const detail::NamedModel& model : detail::models) {
        if (model.name == name) return model.make(classes);
        names += dptk::detail::text(names.empty() ? "" : ", ", model.name);
    }
    throw ArgumentError(dptk::detail::text("unknown model \"", name, "\": expected one of ", names));
}

}  // namespace DPTK_NAMESPACE::nn
