#pragma once

#include "dptk/nn/cuda/bias_gradient.hpp"

#include <cstddef>

#include "dptk/nn/cuda/kernels.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE void BiasGradient::run(Context& context, const Activation& gradient, const void* output,
                                   float* sums) {
    const std::size_t rows = gradient.n * gradient.form.pixels();
    const std::size_t channels = gradient.form.padded;
    const std::size_t scratch = kernels::bias_gradient_scratch(rows, channels, context.type());
    if (scratch > scratch_.size()) {
        scratch_ = DeviceBuffer<float>(scratch);
        context.note_reallocation();
    }
    kernels::bias_gradient(gradient.data, output, context.type(), rows, channels, sums, scratch_.data(),
                           context.stream());
}

}  // namespace DPTK_NAMESPACE::nn::cuda
