/// ReLU: nothing to do where it comes with the output of the layer before, which is usual.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

/// For ReLU behind a Linear or a Conv2d, and for Flatten: activations lie as they should already.
class PassingLayer final : public Layer {
  public:
    using Layer::Layer;

  private:
    Activation do_forward(const Activation& input) override { return input; }
    Activation do_backward_input(const Activation& gradient) override { return gradient; }
};

class ReLULayer final : public Layer {
  public:
    using Layer::Layer;

  private:
    [[nodiscard]] std::size_t elements(const Activation& activation) const noexcept;

    DPTK_INLINE Activation do_forward(const Activation& input) override;

    DPTK_INLINE Activation do_backward_input(const Activation& gradient) override;

    Activation output_;
    ActivationBuffer outputs_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/relu.ipp"
#endif
