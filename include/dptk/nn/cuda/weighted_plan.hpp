/// The base class of the plans for Linear and Conv2d: the gradient of the bias, together with the backward
/// pass of a ReLU that is fused with the operation.
#pragma once

#include <memory>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/parameter.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class WeightedPlan : public Plan {
  public:
    WeightedPlan(Layer& layer, const Layout& input) : Plan(layer, input) { use.keeps_inputs = true; }

    std::vector<Layout> plan_backward(const Layout& output_gradient) final {
        use.keeps_output = has_relu() && !output_gradient.is_masked;
        const std::size_t scratch = kernels::bias_gradient_scratch(output.n * output.form.pixels(),
                                                                   output.form.padded, context().type());
        workspaces.push_back({scratch_, scratch * sizeof(float), nn::detail::WorkspaceUse::backward});
        return {input()};
    }

  protected:
    [[nodiscard]] Parameter& weight() const { return layer().parameter(0); }

    [[nodiscard]] Parameter& bias() const { return layer().parameter(1); }

    /// Whether forward also computes a ReLU.
    [[nodiscard]] bool has_relu() const noexcept { return layer().info().relu == FusedReLU::follows; }

  private:
    /// Computes the bias's gradient, and first zeroes the output gradient where a fused ReLU has no
    /// derivative.
    void do_backward_parameters(const Arguments& arguments) final {
        kernels::bias_gradient(arguments.output_gradient->data,
                               use.keeps_output ? arguments.output->data : nullptr, context().type(),
                               output.n * output.form.pixels(), output.form.padded, bias().gradient().data(),
                               static_cast<float*>(scratch_->data), context().stream());
        do_backward_weight(arguments);
    }

    virtual void do_backward_weight(const Arguments& arguments) = 0;

    Memory scratch_ = std::make_shared<Activation>();
};

}  // namespace DPTK_NAMESPACE::nn::cuda
