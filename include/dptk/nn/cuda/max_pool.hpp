/// MaxPool2d on channels-last images.
#pragma once

#include <cstddef>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/layers.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class MaxPool2dLayer final : public Layer {
  public:
    /// If `after_relu`, input values of zero get no gradient, so that this layer also applies the backward
    /// pass of the ReLU before it.
    MaxPool2dLayer(Context& context, std::string label, const MaxPool2d& spec, const Form& input,
                   bool after_relu);

  private:
    [[nodiscard]] kernels::Pool pool() const noexcept;

    DPTK_INLINE Activation do_forward(const Activation& input) override;

    DPTK_INLINE Activation do_backward_input(const Activation& gradient) override;

    std::size_t window_;
    bool after_relu_;
    Activation input_;
    ActivationBuffer outputs_;
    ActivationBuffer input_gradients_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/max_pool.ipp"
#endif
