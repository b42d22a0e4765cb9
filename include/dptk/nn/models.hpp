/// Ready-made networks for image classification, as lists of layer descriptions: small enough to train on a
/// laptop, and the ones that the benchmarks measure. They fit any image size that their pooling leaves pixels
/// of.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"
#include "dptk/nn/layers.hpp"

namespace dptk::nn {

/// A multi-layer perceptron with hidden layers of 256 and 128; any image size.
[[nodiscard]] inline std::vector<LayerSpec> mlp(std::size_t classes) {
    return {Flatten{}, Linear{.out_features = 256},    ReLU{}, Linear{.out_features = 128},
            ReLU{},    Linear{.out_features = classes}};
}

/// After LeNet-5, with ReLU and max pooling, and with a padding that keeps the size in both convolutions, so
/// that images from 4 × 4 on fit.
[[nodiscard]] inline std::vector<LayerSpec> lenet(std::size_t classes) {
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

/// Two 3 × 3 convolutions (64 and 128 channels), each with ReLU and pooling, and a hidden layer of 512;
/// images from 4 × 4 on. 4.3 million parameters for 3 × 32 × 32 images and 10 classes.
[[nodiscard]] inline std::vector<LayerSpec> convnet(std::size_t classes) {
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

namespace detail {

struct NamedModel {
    std::string_view name;
    std::vector<LayerSpec> (*make)(std::size_t classes);
};

inline constexpr std::array<NamedModel, 3> models{{{"mlp", mlp}, {"lenet", lenet}, {"convnet", convnet}}};

}  // namespace detail

/// The model with the name `name`, as a command line gives it: "mlp", "lenet" or "convnet".
/// \throws ArgumentError that lists the names, where there is no such model
[[nodiscard]] inline std::vector<LayerSpec> make_model(std::string_view name, std::size_t classes) {
    std::string names;
    for (const detail::NamedModel& model : detail::models) {
        if (model.name == name) return model.make(classes);
        names += dptk::detail::text(names.empty() ? "" : ", ", model.name);
    }
    throw ArgumentError(dptk::detail::text("there is no model \"", name, "\"; there are: ", names));
}

}  // namespace dptk::nn
