/// Ready-made networks for image classification, as lists of layer descriptions: small enough to train on a
/// laptop, and the ones that the benchmarks measure. They fit any image size that their pooling leaves pixels
/// of.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/layers.hpp"

namespace DPTK_NAMESPACE::nn {

/// A multi-layer perceptron with hidden layers of 256 and 128; any image size.
[[nodiscard]] std::vector<LayerSpec> mlp(std::size_t classes);

/// After LeNet-5, with ReLU and max pooling, and with a padding that keeps the size in both convolutions, so
/// that images from 4 × 4 on fit.
[[nodiscard]] std::vector<LayerSpec> lenet(std::size_t classes);

/// Two 3 × 3 convolutions (64 and 128 channels), each with ReLU and pooling, and a hidden layer of 512;
/// images from 4 × 4 on. 4.3 million parameters for 3 × 32 × 32 images and 10 classes.
[[nodiscard]] std::vector<LayerSpec> convnet(std::size_t classes);

namespace detail {

struct NamedModel {
    std::string_view name;
    std::vector<LayerSpec> (*make)(std::size_t classes);
};

inline constexpr std::array<NamedModel, 3> models{{{"mlp", mlp}, {"lenet", lenet}, {"convnet", convnet}}};

}  // namespace detail

/// The model with the name `name`, as a command line gives it: "mlp", "lenet" or "convnet".
/// \throws ArgumentError that lists the names, where there is no such model
[[nodiscard]] std::vector<LayerSpec> make_model(std::string_view name, std::size_t classes);

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/models.ipp"
#endif
