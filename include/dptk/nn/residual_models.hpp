/// Convolutional models of the field: ResNet (He et al. 2016) and MobileNetV2 (Sandler et al. 2018), with the
/// parameter names of torchvision, and ResNeSt (Zhang et al. 2020), with those of timm.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/model_options.hpp"

namespace DPTK_NAMESPACE::nn {

/// Returns a ResNet with 18, 34, 50, 101 or 152 layers. Throws ArgumentError for another number, or if the
/// input is too small.
[[nodiscard]] Graph resnet(int layers, const ModelOptions& options = {});

/// Returns a ResNeSt-50 with radix 2 and cardinality 1, timm's resnest50d. Throws ArgumentError if height and
/// width of the input are not multiples of 32.
[[nodiscard]] Graph resnest50(const ModelOptions& options = {});

/// Returns a MobileNetV2 of width 1. Throws ArgumentError if the input is too small.
[[nodiscard]] Graph mobilenet_v2(const ModelOptions& options = {});

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/residual_models.ipp"
#endif
