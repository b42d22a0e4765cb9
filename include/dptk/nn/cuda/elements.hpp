/// Operations on a GPU that work element by element, and operations that do nothing: Flatten, and a ReLU that
/// is fused with the operation before it.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/pointwise.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class IdentityPlan final : public Plan {
  public:
    IdentityPlan(Layer& layer, const Layout& input) : Plan(layer, input) {
        use.is_view = use.passes_gradient = true;
    }

    std::vector<Layout> plan_backward(const Layout& output_gradient) override { return {output_gradient}; }

  private:
    void do_forward(const Arguments& /*arguments*/, const Pass& /*pass*/) override {}
    void do_backward_inputs(const Arguments& /*arguments*/, const Pass& /*pass*/) override {}
};

/// A PointwiseOperation that maps 0 to 0, so that padding remains zero.
template <class Op>
class PointwisePlan final : public Plan {
  public:
    PointwisePlan(Layer& layer, const Layout& input) : Plan(layer, input) {
        use.keeps_output = nn::detail::DerivativeOfOutput<Op>;
        use.keeps_inputs = !use.keeps_output;
        use.overwritable_inputs = use.keeps_inputs ? 0 : 1;
        use.can_overwrite_gradient = true;
    }

    std::vector<Layout> plan_backward(const Layout& /*output_gradient*/) override { return {input()}; }

  private:
    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        kernels::pointwise<Op>(arguments.inputs[0]->data, arguments.output->data, context().type(),
                               elements(), context().stream());
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
        const void* const kept = use.keeps_output ? arguments.output->data : arguments.inputs[0]->data;
        kernels::pointwise_backward<Op>(kept, arguments.output_gradient->data,
                                        arguments.input_gradients[0]->data, context().type(), elements(),
                                        context().stream());
    }
};

class AddPlan final : public Plan {
  public:
    AddPlan(Layer& layer, const Layout& input) : Plan(layer, input) {
        use.overwritable_inputs = 2;
        use.passes_gradient = true;
    }

    std::vector<Layout> plan_backward(const Layout& output_gradient) override {
        return {output_gradient, output_gradient};
    }

  private:
    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        kernels::add(arguments.inputs[0]->data, arguments.inputs[1]->data, arguments.output->data,
                     context().type(), elements(), context().stream());
    }

    void do_backward_inputs(const Arguments& /*arguments*/, const Pass& /*pass*/) override {}
};

class DropoutPlan final : public Plan {
  public:
    DropoutPlan(Layer& layer, const Layout& input) : Plan(layer, input) {
        use.overwritable_inputs = 1;
        use.can_overwrite_gradient = true;
    }

    std::vector<Layout> plan_backward(const Layout& /*output_gradient*/) override { return {input()}; }

  private:
    void do_forward(const Arguments& arguments, const Pass& pass) override {
        drop(arguments.inputs[0]->data, arguments.output->data, pass);
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& pass) override {
        drop(arguments.output_gradient->data, arguments.input_gradients[0]->data, pass);
    }

    void drop(const void* in, void* out, const Pass& pass) {
        const double p = std::get<Dropout>(info().operation).p;
        if (pass.mode == Mode::train && p > 0) {
            context().refuse_capture("the graph would drop the same elements in each step");
            const Form& form = input().form;
            kernels::dropout(in, out, context().type(),
                             {.n = input().n,
                              .channels = form.channels,
                              .padded = form.padded,
                              .pixels = form.pixels(),
                              .seed = pass.seed + info().node,
                              .step = pass.step,
                              .p = p},
                             context().stream());
        } else if (in != out) {
            dptk::cuda::detail::copy_bytes(out, in, elements() * context().type_size(), context().stream());
        }
    }
};

}  // namespace DPTK_NAMESPACE::nn::cuda
