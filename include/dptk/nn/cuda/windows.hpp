/// The windows of convolutions and pools, as kernels need them.
#pragma once

#include <cstddef>
#include <variant>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

/// Returns the windows of a Conv2d, MaxPool2d, AvgPool2d or GlobalAvgPool2d.
[[nodiscard]] inline kernels::Windows windows_of(const Operation& operation, const Layout& input,
                                                 const Form& output) {
    const auto number = [](std::size_t value) { return static_cast<int>(value); };
    kernels::Windows windows{.n = input.n,
                             .channels = input.form.padded,
                             .height = number(input.form.height),
                             .width = number(input.form.width),
                             .out_height = number(output.height),
                             .out_width = number(output.width)};
    const auto set = [&](const auto& options) {
        windows.kernel_height = number(options.kernel_size.height);
        windows.kernel_width = number(options.kernel_size.width);
        windows.stride_height = number(options.stride.height);
        windows.stride_width = number(options.stride.width);
        windows.padding_height = number(options.padding.height);
        windows.padding_width = number(options.padding.width);
    };
    if (const auto* const conv = std::get_if<Conv2d>(&operation)) {
        set(*conv);
        windows.dilation_height = number(conv->dilation.height);
        windows.dilation_width = number(conv->dilation.width);
    } else if (const auto* const max = std::get_if<MaxPool2d>(&operation)) {
        set(*max);
    } else if (const auto* const avg = std::get_if<AvgPool2d>(&operation)) {
        set(*avg);
    } else {
        windows.kernel_height = windows.height;
        windows.kernel_width = windows.width;
    }
    return windows;
}

}  // namespace DPTK_NAMESPACE::nn::cuda
