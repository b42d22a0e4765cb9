/// Ready-made networks for image classification: small ones that train on a laptop, and convolutional models
/// of the field. They accept every image size for which pooling leaves at least one pixel, and resnest50
/// those that are multiples of 32.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/graph.hpp"

namespace DPTK_NAMESPACE::nn {

/// How the first layers of a ResNet treat the input.
enum class Stem {
    large,  ///< torchvision's: a convolution of 7 x 7 with stride 2, and a max pool with stride 2.
    small   ///< For images of about 32 x 32: a convolution of 3 x 3 with stride 1.
};

/// Options of the models.
struct ModelOptions {
    Shape input = {3, 224, 224};  ///< Channels, height and width.
    std::size_t classes = 1000;   ///< The number of outputs.
    Stem stem = Stem::large;      ///< Of a ResNet.
    double dropout = 0.2;         ///< The p before the last layer of a MobileNetV2.
};

/// Returns a multi-layer perceptron with hidden layers of 256 and 128, for any image size.
[[nodiscard]] Graph mlp(const ModelOptions& options);

/// Returns a network like LeNet-5, but with ReLU and max pooling. Both convolutions keep the image size by
/// padding. Images must be at least 4 × 4.
[[nodiscard]] Graph lenet(const ModelOptions& options);

/// Returns a network of two 3 × 3 convolutions (64 and 128 channels), each followed by ReLU and pooling, and
/// one hidden layer of 512. Images must be at least 4 × 4. The network has 4.3 million parameters for images
/// of 3 × 32 × 32 and 10 classes.
[[nodiscard]] Graph convnet(const ModelOptions& options);

/// Returns a network of two blocks, each a 5 × 5 convolution (16 and 32 channels), a batch norm, ReLU and
/// pooling, and one linear layer. Images must be at least 4 × 4. Parameters are named "layer1.0.weight" (the
/// convolution), "layer1.1.weight" (the batch norm), "fc.weight" and so on.
[[nodiscard]] Graph convnet_mnist(const ModelOptions& options);

/// Returns a ResNet (He et al. 2016) with 18, 34, 50, 101 or 152 layers, with torchvision's parameter names.
/// Throws ArgumentError for another number, or if the input is too small.
[[nodiscard]] Graph resnet(int layers, const ModelOptions& options = {});

/// Returns a ResNeSt-50 (Zhang et al. 2020) with radix 2 and cardinality 1, timm's resnest50d, with timm's
/// parameter names. Throws ArgumentError if height and width of the input are not multiples of 32.
[[nodiscard]] Graph resnest50(const ModelOptions& options = {});

/// Returns a MobileNetV2 (Sandler et al. 2018) of width 1, with torchvision's parameter names. Throws
/// ArgumentError if the input is too small.
[[nodiscard]] Graph mobilenet_v2(const ModelOptions& options = {});

/// Returns the names that make_model() accepts.
[[nodiscard]] std::vector<std::string_view> model_names();

/// Returns the model of that name, for command lines: "mlp", "resnet50", "mobilenet_v2" and so on. Throws
/// ArgumentError, with a list of the names, for any other name.
[[nodiscard]] Graph make_model(std::string_view name, const ModelOptions& options);

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/models.ipp"
#include "dptk/nn/residual_models.ipp"
#endif
