/// The windows of convolutions and pools in oneDNN's terms.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/cpu/onednn.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

struct Windows {
    Windows(const Size2d& kernel_size, const Size2d& stride, const Size2d& pad, const Size2d& dilate,
            const OperationInfo& info)
        : kernel(dims_of_size(kernel_size)),
          strides(dims_of_size(stride)),
          dilation(dims_of_size({dilate.height - 1, dilate.width - 1})),
          padding(dims_of_size(pad)) {
        for (std::size_t d = 0; d < 2; ++d) {
            const auto size = static_cast<dnnl::memory::dim>(info.inputs[0][1 + d]),
                       outputs = static_cast<dnnl::memory::dim>(info.output[1 + d]);
            const dnnl::memory::dim span = (dilation[d] + 1) * (kernel[d] - 1) + 1;
            end_padding.push_back((outputs - 1) * strides[d] + span - size - padding[d]);
        }
    }

    Dims kernel;
    Dims strides;
    Dims dilation;  ///< 0 where neighbors are next to each other.
    Dims padding;
    /// What makes windows fill the image exactly; negative where the last rows or columns are not used.
    Dims end_padding;

  private:
    [[nodiscard]] static Dims dims_of_size(const Size2d& size) {
        return {static_cast<dnnl::memory::dim>(size.height), static_cast<dnnl::memory::dim>(size.width)};
    }
};

}  // namespace DPTK_NAMESPACE::nn::cpu
