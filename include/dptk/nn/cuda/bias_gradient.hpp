/// The gradient of a layer's bias, with that of the ReLU that comes with the layer's output.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class BiasGradient {
  public:
    /// `output` is the layer's, where its zeros are to be the gradient's as well; else null.
    void run(Context& context, const Activation& gradient, const void* output, float* sums);

  private:
    DeviceBuffer<float> scratch_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/bias_gradient.ipp"
#endif
