/// The gradient of a layer's bias, with that of the ReLU that comes with the layer's output.
#pragma once

#include "dptk/core/cuda/memory.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace dptk::nn::cuda {

class BiasGradient {
  public:
    /// `output` is the layer's, where its zeros are to be the gradient's as well; else null.
    void run(Context& context, const Activation& gradient, const void* output, float* sums) {
        const std::size_t rows = gradient.n * gradient.form.pixels();
        const std::size_t channels = gradient.form.padded;
        const std::size_t scratch = kernels::bias_gradient_scratch(rows, channels, context.type());
        if (scratch > scratch_.size()) {
            scratch_ = DeviceBuffer<float>(scratch);
            context.note_move();
        }
        kernels::bias_gradient(gradient.data, output, context.type(), rows, channels, sums, scratch_.data(),
                               context.stream());
    }

  private:
    DeviceBuffer<float> scratch_;
};

}  // namespace dptk::nn::cuda
