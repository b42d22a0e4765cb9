/// ReLU with oneDNN's eltwise primitive, in place if possible. After a Linear or a Conv2d, the ReLU is
/// computed together with that layer's output, which saves a pass over the memory. Backward uses the output
/// instead of the input, so that the input need not be copied.
#pragma once

#include <string>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/operation.hpp"
#include "dptk/nn/cpu/reorder.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class ReLULayer final : public Layer {
  public:
    /// `before` is the post-op of the preceding layer. If it is PostOp::relu, forward does nothing.
    ReLULayer(const Context& context, const std::string& label, const Layout& nominal_input, PostOp before)
        : Layer(context, label), before_(before), nominal_(nominal_input) {}

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    struct Plan {
        dnnl::eltwise_forward::primitive_desc described;
        Operation forward;
        dnnl::memory own_output;
        dnnl::memory output;
        Converter output_gradient;
        Operation backward;
        dnnl::memory own_gradient;
    };

    Plan plan_forward(const Layout& layout);

    void plan_backward(Plan& plan, const Layout& output_gradient);

    DPTK_INLINE Activation do_forward(const Activation& input) override;

    DPTK_INLINE Activation do_backward_input(const Activation& output_gradient) override;

    PostOp before_;
    Layout nominal_;
    Plans<Plan> plans_;
    Results outputs_;
    Results input_gradients_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/relu.ipp"
#endif
