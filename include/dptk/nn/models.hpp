/// Ready-made networks for image classification: small ones that train on a laptop, and those of
/// residual_models.hpp. They accept every image size for which pooling leaves at least one pixel, and
/// resnest50 those that are multiples of 32.
#pragma once

#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/model_options.hpp"
#include "dptk/nn/residual_models.hpp"

namespace DPTK_NAMESPACE::nn {

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

/// Returns the names that make_model() accepts.
[[nodiscard]] std::vector<std::string_view> model_names();

/// Returns the model of that name, for command lines: "mlp", "resnet50", "mobilenet_v2" and so on. Throws
/// ArgumentError, with a list of the names, for any other name.
[[nodiscard]] Graph make_model(std::string_view name, const ModelOptions& options);

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/models.ipp"
#endif
