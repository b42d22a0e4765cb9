/// The base class of the plans for Linear and Conv2d: the gradient of the bias, together with the backward
/// pass of a ReLU that is fused with the operation.
#pragma once

#include <memory>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/parameter.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class WeightedPlan : public Plan {
  public:
    WeightedPlan(Layer& layer, const Layout& input);

    std::vector<Layout> plan_backward(const Layout& output_gradient) final;

  protected:
    [[nodiscard]] Parameter& weight() const { return layer().parameter(0); }

    [[nodiscard]] Parameter& bias() const { return layer().parameter(1); }

    /// Whether forward also computes a ReLU.
    [[nodiscard]] bool has_relu() const noexcept { return layer().info().relu == FusedReLU::follows; }

  private:
    /// Computes the bias's gradient, and first zeroes the output gradient where a fused ReLU has no
    /// derivative.
    void do_backward_parameters(const Arguments& arguments) final;

    virtual void do_backward_weight(const Arguments& arguments) = 0;

    Memory scratch_ = std::make_shared<Activation>();
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/weighted_plan.ipp"
#endif
