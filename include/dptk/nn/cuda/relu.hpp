/// ReLU on a GPU, and operations that do nothing: Flatten, and a ReLU that is fused with the preceding Linear
/// or Conv2d.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class IdentityPlan final : public Plan {
  public:
    IdentityPlan(Layer& layer, const Layout& input) : Plan(layer, input) {
        use.is_view = use.passes_gradient = true;
    }

    std::vector<Layout> plan_backward(const Layout& output_gradient) override { return {output_gradient}; }

  private:
    void do_forward(const Arguments& /*arguments*/) override {}
    void do_backward_inputs(const Arguments& /*arguments*/) override {}
};

class ReLUPlan final : public Plan {
  public:
    ReLUPlan(Layer& layer, const Layout& input) : Plan(layer, input) {
        use.keeps_output = use.can_overwrite_gradient = true;
        use.overwritable_inputs = 1;
    }

    std::vector<Layout> plan_backward(const Layout& /*output_gradient*/) override { return {input()}; }

  private:
    DPTK_INLINE void do_forward(const Arguments& arguments) override;

    DPTK_INLINE void do_backward_inputs(const Arguments& arguments) override;

    [[nodiscard]] std::size_t elements() const noexcept { return input().n * input().form.elements(); }
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/relu.ipp"
#endif
