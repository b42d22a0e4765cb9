/// Conv2d in plain loops. Each weight connects rows of the input with rows of the output. All three passes
/// visit the same pairs of rows, and differ only in what they compute for a pair.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/nn/host_call.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// The weight at index `weight` connects the input at `input + x · stride` with the output at `output + x`,
/// for each x below `count`.
struct ConvolutionRow {
    std::size_t weight;
    std::size_t input;
    std::size_t output;
    std::size_t count;
};

/// Visits the pairs of rows of a convolution.
class ConvolutionRows {
  public:
    template <std::floating_point T>
    ConvolutionRows(const Conv2d& conv, const HostCall<T>& call)
        : conv_(conv), in_(call.shapes[0]), out_(call.output_shape) {}

    [[nodiscard]] std::size_t output_plane() const noexcept { return out_[1] * out_[2]; }

    template <class Visit>
    void for_each(std::size_t batch, Visit&& visit) const {
        const std::size_t channels = in_[0] / conv_.groups, filters = out_[0] / conv_.groups;
        for (std::size_t n = 0; n < batch; ++n)
            for (std::size_t o = 0; o < out_[0]; ++o)
                for (std::size_t c = 0; c < channels; ++c)
                    visit_planes((n * out_[0] + o) * output_plane(),
                                 (n * in_[0] + o / filters * channels + c) * in_[1] * in_[2],
                                 o * channels + c, visit);
    }

  private:
    struct Range {
        std::size_t begin;
        std::size_t end;
    };

    /// Returns the range of positions in [0, outputs) for which `position · stride + tap - padding` is in
    /// [0, size), inside the input.
    [[nodiscard]] static Range positions(std::size_t tap, std::size_t padding, std::size_t stride,
                                         std::size_t size, std::size_t outputs) {
        const std::size_t begin = tap >= padding ? 0 : (padding - tap + stride - 1) / stride;
        if (size + padding <= tap) return {0, 0};
        const std::size_t end = std::min(outputs, (size + padding - tap - 1) / stride + 1);
        return {std::min(begin, end), end};
    }

    /// Visits the pairs of rows that the filter `filter`, of one input channel, connects.
    template <class Visit>
    void visit_planes(std::size_t out_plane, std::size_t in_plane, std::size_t filter, Visit& visit) const {
        const auto [kernel_height, kernel_width] = conv_.kernel_size;
        for (std::size_t ky = 0; ky < kernel_height; ++ky) {
            const std::size_t tap_y = ky * conv_.dilation.height;
            const Range ys = positions(tap_y, conv_.padding.height, conv_.stride.height, in_[1], out_[1]);
            for (std::size_t kx = 0; kx < kernel_width; ++kx) {
                const std::size_t tap_x = kx * conv_.dilation.width;
                const Range xs = positions(tap_x, conv_.padding.width, conv_.stride.width, in_[2], out_[2]);
                if (xs.begin == xs.end) continue;
                for (std::size_t y = ys.begin; y < ys.end; ++y) {
                    const std::size_t in_y = y * conv_.stride.height + tap_y - conv_.padding.height;
                    const std::size_t in_x = xs.begin * conv_.stride.width + tap_x - conv_.padding.width;
                    visit(ConvolutionRow{.weight = (filter * kernel_height + ky) * kernel_width + kx,
                                         .input = in_plane + in_y * in_[2] + in_x,
                                         .output = out_plane + y * out_[2] + xs.begin,
                                         .count = xs.end - xs.begin});
                }
            }
        }
    }

    const Conv2d& conv_;
    std::span<const std::size_t> in_;
    std::span<const std::size_t> out_;
};

template <std::floating_point T>
void forward(const Conv2d& conv, const HostCall<T>& call) {
    const ConvolutionRows rows(conv, call);
    const std::size_t plane = rows.output_plane(), stride = conv.stride.width;
    for (std::size_t i = 0; i < call.batch * conv.out_channels; ++i)
        std::fill_n(call.output.data() + i * plane, plane,
                    conv.bias ? call.parameters[1][i % conv.out_channels] : T{0});
    rows.for_each(call.batch, [&](const ConvolutionRow& row) {
        const T weight = call.parameters[0][row.weight];
        T* const out = call.output.data() + row.output;
        const T* const in = call.inputs[0] + row.input;
        for (std::size_t x = 0; x < row.count; ++x) out[x] += weight * in[x * stride];
    });
}

template <std::floating_point T>
void backward_parameters(const Conv2d& conv, const HostCall<T>& call) {
    const ConvolutionRows rows(conv, call);
    const std::size_t plane = rows.output_plane(), stride = conv.stride.width;
    rows.for_each(call.batch, [&](const ConvolutionRow& row) {
        const T* const gradient = call.output_gradient.data() + row.output;
        const T* const in = call.inputs[0] + row.input;
        T sum = 0;
        for (std::size_t x = 0; x < row.count; ++x) sum += gradient[x] * in[x * stride];
        call.parameter_gradients[0][row.weight] += sum;
    });
    if (!conv.bias) return;
    for (std::size_t i = 0; i < call.output_gradient.size(); ++i)
        call.parameter_gradients[1][i / plane % conv.out_channels] += call.output_gradient[i];
}

template <std::floating_point T>
void backward_inputs(const Conv2d& conv, const HostCall<T>& call) {
    const std::size_t stride = conv.stride.width;
    ConvolutionRows(conv, call).for_each(call.batch, [&](const ConvolutionRow& row) {
        const T weight = call.parameters[0][row.weight];
        const T* const gradient = call.output_gradient.data() + row.output;
        T* const in = call.input_gradients[0] + row.input;
        for (std::size_t x = 0; x < row.count; ++x) in[x * stride] += weight * gradient[x];
    });
}

}  // namespace DPTK_NAMESPACE::nn::reference
