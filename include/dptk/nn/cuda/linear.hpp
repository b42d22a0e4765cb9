/// Linear with cuBLASLt. Bias and ReLU are fused with the matrix product.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/matrix_product.hpp"
#include "dptk/nn/cuda/weighted_plan.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class LinearPlan final : public WeightedPlan {
  public:
    LinearPlan(Layer& layer, const Layout& input);

  private:
    DPTK_INLINE void do_forward(const Arguments& arguments) override;

    DPTK_INLINE void do_backward_weight(const Arguments& arguments) override;

    DPTK_INLINE void do_backward_inputs(const Arguments& arguments) override;

    MatrixProduct forward_;
    MatrixProduct gradients_;
    MatrixProduct backward_input_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/linear.ipp"
#endif
