/// Pools with oneDNN's pooling.
#pragma once

#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/operations.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// The windows of a pool, in oneDNN's terms.
struct PoolWindows {
    dnnl::algorithm algorithm;
    Size2d kernel_size;
    Size2d stride;
    Size2d padding;
};

/// Returns the windows of MaxPool2d, AvgPool2d or GlobalAvgPool2d.
[[nodiscard]] PoolWindows pool_windows(const OperationInfo& info);

class PoolLayer final : public Layer {
  public:
    PoolLayer(const Context& context, const Request& request);

    [[nodiscard]] DPTK_INLINE Layout nominal_output() const override;

    [[nodiscard]] PoolingForward::primitive_desc describe_forward(const Layout& input) const;

    [[nodiscard]] PoolingBackward::primitive_desc describe_gradient(
        const PoolingForward::primitive_desc& forward) const;

  private:
    DPTK_INLINE PlanPointer do_plan(std::size_t batch, std::span<const Layout> inputs) override;

    PoolWindows windows_;
    Dims kernel_;
    Dims strides_;
    Dims no_dilation_ = {0, 0};
    Dims padding_;
    Dims end_padding_;
    Layout nominal_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/pool.ipp"
#endif
