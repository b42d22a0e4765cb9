/// ReLU on a GPU. A ReLU after a Linear or Conv2d is fused with that layer; an IdentityLayer then replaces
/// the ReLULayer.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

/// Passes activations through: for a ReLU that is fused with the preceding Linear or Conv2d, and for
/// Flatten.
class IdentityLayer final : public Layer {
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
