/// MaxPool2d of channels-last images.
#pragma once

#include <string>
#include <utility>

#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/layers.hpp"

namespace dptk::nn::cuda {

class MaxPool2dLayer final : public Layer {
  public:
    /// `behind_relu`: nothing that is zero gets a gradient.
    MaxPool2dLayer(Context& context, std::string label, const MaxPool2d& spec, const Form& input,
                   bool behind_relu)
        : Layer(context, std::move(label),
                {input.channels, input.padded, input.height / spec.kernel_size,
                 input.width / spec.kernel_size}),
          window_(spec.kernel_size),
          behind_relu_(behind_relu) {}

  private:
    [[nodiscard]] kernels::Pool pool() const noexcept {
        const Form& form = input_.form;
        return {input_.n, form.height, form.width, form.padded, window_};
    }

    Activation do_forward(const Activation& input) override {
        input_ = input;
        const Activation output = outputs_.get(context(), input.n, output_form());
        kernels::max_pool(input.data, output.data, context().type(), pool(), context().stream());
        return output;
    }

    Activation do_backward_input(const Activation& gradient) override {
        const Activation result = input_gradients_.get(context(), gradient.n, input_.form);
        kernels::max_pool_backward(input_.data, gradient.data, result.data, context().type(), pool(),
                                   behind_relu_, context().stream());
        return result;
    }

    std::size_t window_;
    bool behind_relu_;
    Activation input_;
    ActivationBuffer outputs_;
    ActivationBuffer input_gradients_;
};

}  // namespace dptk::nn::cuda
