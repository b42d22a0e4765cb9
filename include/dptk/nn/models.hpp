/// Ready-made networks for image classification, as lists of layer descriptions: mlp, lenet and convnet.
/// They are small enough to train on a laptop; the benchmarks use them. They accept every image size for
/// which pooling leaves at least one pixel.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/layers.hpp"

namespace DPTK_NAMESPACE::nn {

/// Returns a multi-layer perceptron with hidden layers of 256 and 128, for any image size.
[[nodiscard]] std::vector<LayerSpec> mlp(std::size_t classes);

/// Returns a network like LeNet-5, but with ReLU and max pooling. Both convolutions keep the image size by
/// padding. Images must be at least 4 × 4.
[[nodiscard]] std::vector<LayerSpec> lenet(std::size_t classes);

/// Returns a network of two 3 × 3 convolutions (64 and 128 channels), each followed by ReLU and pooling, and
/// one hidden layer of 512. Images must be at least 4 × 4. The network has 4.3 million parameters for images
/// of 3 × 32 × 32 and 10 classes.
[[nodiscard]] std::vector<LayerSpec> convnet(std::size_t classes);

namespace detail {

struct NamedModel {
    std::string_view name;
    std::vector<LayerSpec> (*make)(std::size_t classes);
};

inline constexpr std::array<NamedModel, 3> models{{{"mlp", mlp}, {"lenet", lenet}, {"convnet", convnet}}};

}  // namespace detail

/// Returns the model named "mlp", "lenet" or "convnet", for command lines. For any other name, throws an
/// ArgumentError that lists these names.
[[nodiscard]] std::vector<LayerSpec> make_model(std::string_view name, std::size_t classes);

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/models.ipp"
#endif
