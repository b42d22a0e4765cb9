/// ReLU on a GPU, and operations that do nothing: Flatten, and a ReLU that is fused with the preceding Linear
/// or Conv2d.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/nn/cuda/kernels.hpp"
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
    void do_forward(const Arguments& arguments) override {
        kernels::relu(arguments.inputs[0]->data, arguments.output->data, context().type(), elements(),
                      context().stream());
    }

    void do_backward_inputs(const Arguments& arguments) override {
        void* const gradient = arguments.input_gradients[0]->data;
        if (gradient != arguments.output_gradient->data)
            dptk::cuda::detail::copy_bytes(gradient, arguments.output_gradient->data,
                                           elements() * context().type_size(), context().stream());
        kernels::relu_backward(arguments.output->data, gradient, context().type(), elements(),
                               context().stream());
    }

    [[nodiscard]] std::size_t elements() const noexcept { return input().n * input().form.elements(); }
};

}  // namespace DPTK_NAMESPACE::nn::cuda
