/// Linear in plain loops: y = x·Wᵀ + b, with W [out_features, in_features].
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/nn/initialize.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/nn/reference/layer.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn::reference {

template <std::floating_point T>
class LinearLayer final : public Layer<T> {
  public:
    LinearLayer(const Linear& spec, const Shape& input, Generator& generator)
        : in_(input[0]),
          out_(spec.out_features),
          weight_("weight", {out_, in_}, in_, generator),
          bias_("bias", {out_}, in_, generator) {}

    std::vector<Parameter<T>*> parameters() override { return {&weight_, &bias_}; }

    Activation<T> forward(const Activation<T>& input) override {
        input_ = input;
        output_.resize(input.batch * out_);
        for (std::size_t n = 0; n < input.batch; ++n)
            for (std::size_t o = 0; o < out_; ++o)
                output_[n * out_ + o] =
                    bias_.values()[o] + dot(input.values.data() + n * in_, weight_row(o), in_);
        return {output_, input.batch};
    }

    /// Computes dW = gᵀ·x and db = Σₙ g.
    void backward_parameters(const Activation<T>& output_gradient) override {
        const std::span<T> weight = weight_.gradient();
        const std::span<T> bias = bias_.gradient();
        dptk::detail::fill(weight, T{0});
        dptk::detail::fill(bias, T{0});
        for (std::size_t n = 0; n < output_gradient.batch; ++n) {
            for (std::size_t o = 0; o < out_; ++o) {
                const T g = output_gradient.values[n * out_ + o];
                bias[o] += g;
                add_scaled(weight.data() + o * in_, g, input_.values.data() + n * in_, in_);
            }
        }
    }

    /// Computes dx = g·W.
    Activation<T> backward_input(const Activation<T>& output_gradient) override {
        const std::span<T> result = zeros(input_gradient_, output_gradient.batch * in_);
        for (std::size_t n = 0; n < output_gradient.batch; ++n)
            for (std::size_t o = 0; o < out_; ++o)
                add_scaled(result.data() + n * in_, output_gradient.values[n * out_ + o], weight_row(o), in_);
        return {result, output_gradient.batch};
    }

  private:
    const T* weight_row(std::size_t o) { return weight_.values().data() + o * in_; }

    std::size_t in_;
    std::size_t out_;
    Parameter<T> weight_;
    Parameter<T> bias_;
    Activation<T> input_;
    std::vector<T> output_;
    std::vector<T> input_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::reference
