/// The base class of the plans for Linear and Conv2d: the gradient of the bias, together with the backward
/// pass of a ReLU that is fused with the operation.
#pragma once

#include <memory>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/parameter.hpp"
#include "dptk/nn/pointwise.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class WeightedPlan : public Plan {
  public:
    WeightedPlan(Layer& layer, const Layout& input) : Plan(layer, input) {
        using nn::detail::WorkspaceUse;
        use.keeps_inputs = true;
        use.keeps_output = has_relu();
        const std::size_t rows = output.n * output.form.pixels();
        if (has_bias())
            scratch_ = add_workspace(
                kernels::channel_sums_scratch(rows, output.form.padded, context().type()) * sizeof(float),
                WorkspaceUse::backward);
        if (has_relu())
            masked_ =
                add_workspace(rows * output.form.padded * context().type_size(), WorkspaceUse::backward);
    }

    std::vector<Layout> plan_backward(const Layout& /*output_gradient*/) final { return {input()}; }

  protected:
    [[nodiscard]] Parameter& weight() const { return layer().parameter(0); }

    [[nodiscard]] bool has_bias() const noexcept { return layer().parameter_count() == 2; }

    /// Returns the bias in the type of activations, or null.
    [[nodiscard]] const void* bias() const { return has_bias() ? layer().parameter(1).operand() : nullptr; }

    /// Returns the gradient of the output before a fused ReLU, in backward.
    [[nodiscard]] void* gradient(const Arguments& arguments) const {
        return has_relu() ? masked_->data : arguments.output_gradient->data;
    }

  private:
    void do_backward_parameters(const Arguments& arguments, const Pass& /*pass*/) final {
        const std::size_t rows = output.n * output.form.pixels();
        const void* const before = arguments.output_gradient->data;
        const void* const mask = has_relu() ? arguments.output->data : nullptr;
        void* const masked = has_relu() ? masked_->data : nullptr;
        if (has_bias()) {
            kernels::bias_gradient(before, mask, masked, context().type(), rows, output.form.padded,
                                   layer().parameter(1).gradient().data(),
                                   static_cast<float*>(scratch_->data), context().stream());
        } else if (has_relu()) {
            kernels::pointwise_backward<ReLU>(mask, before, masked, context().type(),
                                              rows * output.form.padded, context().stream());
        }
        do_backward_weight(arguments);
    }

    virtual void do_backward_weight(const Arguments& arguments) = 0;

    Memory scratch_;
    Memory masked_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda
