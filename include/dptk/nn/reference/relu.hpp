/// ReLU and Flatten in plain loops. Flatten computes nothing, since all memory is row-major.
#pragma once

#include <concepts>
#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/reference/layer.hpp"

namespace DPTK_NAMESPACE::nn::reference {

template <std::floating_point T>
class ReLULayer final : public Layer<T> {
  public:
    Activation<T> forward(const Activation<T>& input) override {
        output_.resize(input.values.size());
        for (std::size_t i = 0; i < output_.size(); ++i)
            output_[i] = input.values[i] < T{0} ? T{0} : input.values[i];  // NaN stays NaN
        return {output_, input.batch};
    }

    Activation<T> backward_input(const Activation<T>& output_gradient) override {
        input_gradient_.resize(output_.size());
        for (std::size_t i = 0; i < output_.size(); ++i)
            input_gradient_[i] = output_[i] > T{0} ? output_gradient.values[i] : T{0};
        return {input_gradient_, output_gradient.batch};
    }

  private:
    std::vector<T> output_;
    std::vector<T> input_gradient_;
};

template <std::floating_point T>
class FlattenLayer final : public Layer<T> {
  public:
    Activation<T> forward(const Activation<T>& input) override { return input; }

    Activation<T> backward_input(const Activation<T>& output_gradient) override { return output_gradient; }
};

}  // namespace DPTK_NAMESPACE::nn::reference
