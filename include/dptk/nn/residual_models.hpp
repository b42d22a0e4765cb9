/// Graphs of convolutional models, with the parameter names of torchvision: ResNet (He et al. 2016) and
/// MobileNetV2 (Sandler et al. 2018).
#pragma once

#include <cstddef>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/graph.hpp"

namespace DPTK_NAMESPACE::nn {

/// How the first layers of a ResNet treat the input.
enum class Stem {
    large,  ///< torchvision's: a convolution of 7 x 7 with stride 2, and a max pool with stride 2.
    small   ///< For images of about 32 x 32: a convolution of 3 x 3 with stride 1.
};

/// Options of the models below.
struct ModelOptions {
    Shape input = {3, 224, 224};  ///< Channels, height and width.
    std::size_t classes = 1000;   ///< The number of outputs.
    Stem stem = Stem::large;      ///< Of a ResNet.
    double dropout = 0.2;         ///< The p before the last layer of a MobileNetV2.
};

/// Returns a ResNet with 18, 34, 50, 101 or 152 layers. Throws ArgumentError for another number, or if the
/// input is too small.
[[nodiscard]] Graph resnet(int layers, const ModelOptions& options = {});

/// Returns a MobileNetV2 of width 1. Throws ArgumentError if the input is too small.
[[nodiscard]] Graph mobilenet_v2(const ModelOptions& options = {});

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/residual_models.ipp"
#endif
