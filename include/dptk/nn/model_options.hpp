/// Options of the ready-made models.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn {

/// How the first layers of a ResNet treat the input.
enum class Stem {
    large,  ///< torchvision's: a convolution of 7 x 7 with stride 2, and a max pool with stride 2.
    small   ///< For images of about 32 x 32: a convolution of 3 x 3 with stride 1.
};

/// Options of the models in models.hpp and residual_models.hpp.
struct ModelOptions {
    Shape input = {3, 224, 224};  ///< Channels, height and width.
    std::size_t classes = 1000;   ///< The number of outputs.
    Stem stem = Stem::large;      ///< Of a ResNet.
    double dropout = 0.2;         ///< The p before the last layer of a MobileNetV2.
};

}  // namespace DPTK_NAMESPACE::nn
