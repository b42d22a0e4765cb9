/// MaxPool2d in plain loops. Forward stores the position of each maximum, to which backward adds the
/// gradient.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/nn/reference/layer.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn::reference {

template <std::floating_point T>
class MaxPool2dLayer final : public Layer<T> {
  public:
    MaxPool2dLayer(const MaxPool2d& spec, const Shape& input)
        : kernel_(spec.kernel_size), in_(input), out_(nn::output_shape(spec, input)) {}

    Activation<T> forward(const Activation<T>& input) override {
        output_.resize(input.batch * element_count(out_));
        source_.resize(output_.size());
        for (std::size_t i = 0; i < output_.size(); ++i) {
            source_[i] = largest_in_window(input.values, i);
            output_[i] = input.values[source_[i]];
        }
        return {output_, input.batch};
    }

    Activation<T> backward_input(const Activation<T>& output_gradient) override {
        const std::span<T> result = zeros(input_gradient_, output_gradient.batch * element_count(in_));
        for (std::size_t i = 0; i < output_gradient.values.size(); ++i)
            result[source_[i]] += output_gradient.values[i];
        return {result, output_gradient.batch};
    }

  private:
    /// Returns the index of the first maximum in the window of output element `i`. NaN counts as larger
    /// than every number.
    [[nodiscard]] std::size_t largest_in_window(std::span<const T> input, std::size_t i) const {
        const std::size_t x = i % out_[2];
        const std::size_t y = i / out_[2] % out_[1];
        const std::size_t plane = i / (out_[1] * out_[2]);
        const std::size_t corner = (plane * in_[1] + y * kernel_) * in_[2] + x * kernel_;
        std::size_t best = corner;
        for (std::size_t ky = 0; ky < kernel_; ++ky) {
            for (std::size_t kx = 0; kx < kernel_; ++kx) {
                const std::size_t candidate = corner + ky * in_[2] + kx;
                if (input[candidate] > input[best] || std::isnan(input[candidate])) best = candidate;
            }
        }
        return best;
    }

    std::size_t kernel_;
    Shape in_;
    Shape out_;
    std::vector<std::size_t> source_;
    std::vector<T> output_;
    std::vector<T> input_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::reference
