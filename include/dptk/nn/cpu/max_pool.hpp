/// MaxPool2d with oneDNN's pooling, in the layout of its input. The workspace stores the position of each
/// maximum.
#pragma once

#include <string>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/operation.hpp"
#include "dptk/nn/cpu/reorder.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class MaxPool2dLayer final : public Layer {
  public:
    /// `input` is the shape of a sample, {channels, height, width}.
    MaxPool2dLayer(const Context& context, const std::string& label, const MaxPool2d& spec,
                   const Shape& input, const Layout& nominal_input);

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    struct Plan {
        PoolingForward::primitive_desc described;
        Operation forward;
        dnnl::memory output;
        dnnl::memory workspace;
        Converter output_gradient;
        Operation backward;
        dnnl::memory input_gradient;
    };

    [[nodiscard]] PoolingForward::primitive_desc describe_forward(const Layout& input) const;

    Plan plan_forward(const Layout& input);

    void plan_backward(Plan& plan, const Layout& output_gradient);

    DPTK_INLINE Activation do_forward(const Activation& input) override;

    DPTK_INLINE Activation do_backward_input(const Activation& output_gradient) override;

    Dims kernel_;
    Dims no_dilation_ = {0, 0};
    Dims no_padding_ = {0, 0};
    Shape out_;
    Layout nominal_;
    Plans<Plan> plans_;
    Results outputs_;
    Results input_gradients_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/max_pool.ipp"
#endif
