/// The gradient of a layer's bias, together with the backward pass of a ReLU that is fused with the layer.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class BiasGradient {
  public:
    /// Sums the gradient over the rows. If `output`, the layer's output, is not null, first zeroes the
    /// gradient where the output is zero.
    void run(Context& context, const Activation& gradient, const void* output, float* sums);

  private:
    DeviceBuffer<float> scratch_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/bias_gradient.ipp"
#endif
