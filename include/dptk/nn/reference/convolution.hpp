/// Conv2d in plain loops. Each weight connects rows of the input with rows of the output. All three passes
/// visit the same pairs of rows, and differ only in what they compute for a pair.
#pragma once

#include <algorithm>
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
class Conv2dLayer final : public Layer<T> {
  public:
    Conv2dLayer(const Conv2d& spec, const Shape& input, Generator& generator)
        : spec_(spec),
          in_(input),
          out_(nn::output_shape(spec, input)),
          weight_("weight", {out_[0], in_[0], spec.kernel_size, spec.kernel_size}, fan_in(), generator),
          bias_("bias", {out_[0]}, fan_in(), generator) {}

    std::vector<Parameter<T>*> parameters() override { return {&weight_, &bias_}; }

    Activation<T> forward(const Activation<T>& input) override {
        input_ = input;
        output_.resize(input.batch * element_count(out_));
        const std::size_t plane = out_[1] * out_[2];
        for (std::size_t i = 0; i < input.batch * out_[0]; ++i)
            std::fill_n(output_.data() + i * plane, plane, bias_.values()[i % out_[0]]);
        for_each_row(input.batch, [&](const Row& row) {
            const T weight = weight_.values()[row.weight];
            T* out = output_.data() + row.output;
            const T* in = input.values.data() + row.input;
            for (std::size_t x = 0; x < row.count; ++x) out[x] += weight * in[x * spec_.stride];
        });
        return {output_, input.batch};
    }

    void backward_parameters(const Activation<T>& output_gradient) override {
        const std::span<T> weight = weight_.gradient();
        dptk::detail::fill(weight, T{0});
        for_each_row(output_gradient.batch, [&](const Row& row) {
            const T* gradient = output_gradient.values.data() + row.output;
            const T* in = input_.values.data() + row.input;
            T sum = 0;
            for (std::size_t x = 0; x < row.count; ++x) sum += gradient[x] * in[x * spec_.stride];
            weight[row.weight] += sum;
        });
        const std::span<T> bias = bias_.gradient();
        dptk::detail::fill(bias, T{0});
        const std::size_t plane = out_[1] * out_[2];
        for (std::size_t i = 0; i < output_gradient.values.size(); ++i)
            bias[i / plane % out_[0]] += output_gradient.values[i];
    }

    Activation<T> backward_input(const Activation<T>& output_gradient) override {
        const std::span<T> result = zeros(input_gradient_, output_gradient.batch * element_count(in_));
        for_each_row(output_gradient.batch, [&](const Row& row) {
            const T weight = weight_.values()[row.weight];
            const T* gradient = output_gradient.values.data() + row.output;
            T* in = result.data() + row.input;
            for (std::size_t x = 0; x < row.count; ++x) in[x * spec_.stride] += weight * gradient[x];
        });
        return {result, output_gradient.batch};
    }

  private:
    /// The weight at index `weight` connects the input at `input + x · stride` with the output at `output +
    /// x`, for each x below `count`.
    struct Row {
        std::size_t weight;
        std::size_t input;
        std::size_t output;
        std::size_t count;
    };

    struct Range {
        std::size_t begin;
        std::size_t end;
    };

    [[nodiscard]] std::size_t fan_in() const { return in_[0] * spec_.kernel_size * spec_.kernel_size; }

    /// Returns the range of positions in [0, outputs) for which `position · stride + tap - padding` is in
    /// [0, size), inside the input.
    [[nodiscard]] Range positions(std::size_t tap, std::size_t size, std::size_t outputs) const {
        const std::size_t stride = spec_.stride;
        const std::size_t begin = tap >= spec_.padding ? 0 : (spec_.padding - tap + stride - 1) / stride;
        if (size + spec_.padding <= tap) return {0, 0};
        const std::size_t end = std::min(outputs, (size + spec_.padding - tap - 1) / stride + 1);
        return {std::min(begin, end), end};
    }

    template <class Visit>
    void for_each_row(std::size_t batch, Visit&& visit) const {
        for (std::size_t n = 0; n < batch; ++n)
            for (std::size_t o = 0; o < out_[0]; ++o)
                for (std::size_t c = 0; c < in_[0]; ++c) visit_planes(n, o, c, visit);
    }

    /// Visits the pairs of rows that connect input channel `c` with output channel `o` in sample `n`.
    template <class Visit>
    void visit_planes(std::size_t n, std::size_t o, std::size_t c, Visit& visit) const {
        const std::size_t kernel = spec_.kernel_size;
        const std::size_t out_plane = (n * out_[0] + o) * out_[1] * out_[2];
        const std::size_t in_plane = (n * in_[0] + c) * in_[1] * in_[2];
        for (std::size_t ky = 0; ky < kernel; ++ky) {
            for (std::size_t kx = 0; kx < kernel; ++kx) {
                const Range ys = positions(ky, in_[1], out_[1]);
                const Range xs = positions(kx, in_[2], out_[2]);
                if (xs.begin == xs.end) continue;
                for (std::size_t y = ys.begin; y < ys.end; ++y) {
                    const std::size_t in_y = y * spec_.stride + ky - spec_.padding;
                    const std::size_t in_x = xs.begin * spec_.stride + kx - spec_.padding;
                    visit(Row{.weight = ((o * in_[0] + c) * kernel + ky) * kernel + kx,
                              .input = in_plane + in_y * in_[2] + in_x,
                              .output = out_plane + y * out_[2] + xs.begin,
                              .count = xs.end - xs.begin});
                }
            }
        }
    }

    Conv2d spec_;
    Shape in_;
    Shape out_;
    Parameter<T> weight_;
    Parameter<T> bias_;
    Activation<T> input_;
    std::vector<T> output_;
    std::vector<T> input_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::reference
