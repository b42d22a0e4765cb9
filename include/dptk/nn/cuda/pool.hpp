/// MaxPool2d, AvgPool2d and GlobalAvgPool2d on channels-last images.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/windows.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class PoolPlan final : public Plan {
  public:
    PoolPlan(Layer& layer, const Layout& input)
        : Plan(layer, input),
          windows_(windows_of(info().operation, input, output.form)),
          is_max_(std::holds_alternative<MaxPool2d>(info().operation)) {
        const std::size_t places = output.n * output.form.elements();
        if (is_max_) places_ = add_workspace(places * sizeof(std::uint16_t), nn::detail::WorkspaceUse::kept);
    }

    std::vector<Layout> plan_backward(const Layout& /*output_gradient*/) override { return {input()}; }

  private:
    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        void* const in = arguments.inputs[0]->data;
        void* const out = arguments.output->data;
        if (is_max_) {
            kernels::max_pool(in, out, places(), context().type(), windows_, context().stream());
        } else {
            kernels::avg_pool(in, out, context().type(), windows_, context().stream());
        }
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
        const void* const gradient = arguments.output_gradient->data;
        void* const input_gradient = arguments.input_gradients[0]->data;
        if (is_max_) {
            kernels::max_pool_backward(gradient, places(), input_gradient, context().type(), windows_,
                                       context().stream());
        } else {
            kernels::avg_pool_backward(gradient, input_gradient, context().type(), windows_,
                                       context().stream());
        }
    }

    [[nodiscard]] std::uint16_t* places() const { return static_cast<std::uint16_t*>(places_->data); }

    kernels::Windows windows_;
    bool is_max_;
    Memory places_;  // of the maxima in their windows
};

}  // namespace DPTK_NAMESPACE::nn::cuda
