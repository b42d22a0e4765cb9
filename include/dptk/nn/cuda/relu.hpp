/// ReLU: nothing to do where it comes with the output of the layer before, which is usual.
#pragma once

#include <string>
#include <utility>

#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace dptk::nn::cuda {

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
    [[nodiscard]] std::size_t elements(const Activation& activation) const noexcept {
        return activation.n * activation.form.elements();
    }

    Activation do_forward(const Activation& input) override {
        output_ = outputs_.get(context(), input.n, input.form);
        kernels::relu(input.data, output_.data, context().type(), elements(input), context().stream());
        return output_;
    }

    Activation do_backward_input(const Activation& gradient) override {
        kernels::relu_backward(output_.data, gradient.data, context().type(), elements(gradient),
                               context().stream());
        return gradient;
    }

    Activation output_;
    ActivationBuffer outputs_;
};

}  // namespace dptk::nn::cuda
