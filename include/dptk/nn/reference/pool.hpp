/// Pools in plain loops.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/nn/host_call.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// Calls window(output, first, visit) for each window of a pool, where visit(fn) calls fn(input) for its
/// elements that are not in the padding.
template <PoolKind kind, std::floating_point T, class Window>
void for_each_window(const Pool2d<kind>& pool, const HostCall<T>& call, Window&& window) {
    const std::span<const std::size_t> in = call.shapes[0], out = call.output_shape;
    std::size_t output = 0;
    for (std::size_t plane = 0; plane < call.batch * in[0]; ++plane) {
        for (std::size_t y = 0; y < out[1]; ++y) {
            for (std::size_t x = 0; x < out[2]; ++x, ++output) {
                window(output, [&](auto&& visit) {
                    for (std::size_t ky = 0; ky < pool.kernel_size.height; ++ky) {
                        const std::size_t iy = y * pool.stride.height + ky - pool.padding.height;
                        for (std::size_t kx = 0; iy < in[1] && kx < pool.kernel_size.width; ++kx) {
                            const std::size_t ix = x * pool.stride.width + kx - pool.padding.width;
                            if (ix < in[2]) visit((plane * in[1] + iy) * in[2] + ix);
                        }
                    }
                });
            }
        }
    }
}

template <PoolKind kind, std::floating_point T>
void forward(const Pool2d<kind>& pool, const HostCall<T>& call) {
    constexpr bool is_max = kind == PoolKind::max;
    const auto count = static_cast<T>(pool.kernel_size.height * pool.kernel_size.width);
    if (is_max) call.saved.indices.resize(call.output.size());
    for_each_window(pool, call, [&](std::size_t output, auto&& for_each_input) {
        T sum = 0;
        const T* best = nullptr;
        for_each_input([&](std::size_t input) {
            const T* const value = call.inputs[0] + input;
            sum += *value;
            if (best == nullptr || *value > *best || std::isnan(*value)) best = value;
        });
        call.output[output] = is_max ? *best : sum / count;
        if (is_max) call.saved.indices[output] = static_cast<std::size_t>(best - call.inputs[0]);
    });
}

template <PoolKind kind, std::floating_point T>
void backward_inputs(const Pool2d<kind>& pool, const HostCall<T>& call) {
    if constexpr (kind == PoolKind::max) {
        for (std::size_t i = 0; i < call.output.size(); ++i)
            call.input_gradients[0][call.saved.indices[i]] += call.output_gradient[i];
    } else {
        const auto count = static_cast<T>(pool.kernel_size.height * pool.kernel_size.width);
        for_each_window(pool, call, [&](std::size_t output, auto&& for_each_input) {
            for_each_input([&](std::size_t input) {
                call.input_gradients[0][input] += call.output_gradient[output] / count;
            });
        });
    }
}

/// Returns a pool whose only window is the image.
[[nodiscard]] inline AvgPool2d pool_of_image(const Shape& image) {
    return {.kernel_size = {image[1], image[2]}};
}

template <std::floating_point T>
void forward(const GlobalAvgPool2d&, const HostCall<T>& call) {
    forward(pool_of_image(call.shapes[0]), call);
}

template <std::floating_point T>
void backward_inputs(const GlobalAvgPool2d&, const HostCall<T>& call) {
    backward_inputs(pool_of_image(call.shapes[0]), call);
}

}  // namespace DPTK_NAMESPACE::nn::reference
