/// MaxPool2d on channels-last images.
#pragma once

#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

/// After a ReLU, input values of zero get no gradient, so that this plan also applies the ReLU's backward
/// pass.
class MaxPool2dPlan final : public Plan {
  public:
    MaxPool2dPlan(Layer& layer, const Layout& input);

    std::vector<Layout> plan_backward(const Layout& output_gradient) override;

  private:
    DPTK_INLINE void do_forward(const Arguments& arguments) override;

    DPTK_INLINE void do_backward_inputs(const Arguments& arguments) override;

    kernels::Pool pool_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/max_pool.ipp"
#endif
