#pragma once

#include "dptk/nn/cuda/linear.hpp"

#include <utility>

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE LinearLayer::LinearLayer(Context& context, std::string label, const Linear& spec,
                                     const Form& input, Activate activate, Generator& generator)
    : Layer(context, std::move(label), {.channels = spec.out_features, .padded = spec.out_features}),
      input_(input),
      activate_(activate),
      weight_(context, "weight", {spec.out_features, input.channels * input.pixels()},
              {.outputs = spec.out_features,
               .padded_outputs = spec.out_features,
               .channels = input.channels,
               .padded_channels = input.padded,
               .positions = input.pixels()},
              input.channels * input.pixels(), generator),
      bias_(context, "bias", {spec.out_features},
            {.outputs = spec.out_features, .padded_outputs = spec.out_features},
            input.channels * input.pixels(), generator) {}

DPTK_INLINE LinearLayer::Plan LinearLayer::make_plan(std::size_t n) {
    const std::size_t in = input_.elements();
    const std::size_t out = output_form().elements();
    Context& c = context();
    return {MatrixProduct(
                c, {.rows = n,
                    .columns = out,
                    .inner = in,
                    .b = Side::transposed,
                    .result = c.type(),
                    .epilogue = activate_ == Activate::none ? Epilogue::bias : Epilogue::bias_and_relu}),
            MatrixProduct(c, {.rows = out, .columns = in, .inner = n, .a = Side::transposed}),
            MatrixProduct(c, {.rows = n, .columns = in, .inner = out, .result = c.type()})};
}

DPTK_INLINE Activation LinearLayer::do_forward(const Activation& input) {
    auto plan = plans_.find(input.n);
    if (plan == plans_.end()) plan = plans_.emplace(input.n, make_plan(input.n)).first;
    current_ = &plan->second;
    source_ = input;
    output_ = outputs_.get(context(), input.n, output_form());
    current_->forward.run(input.data, weight_.operand(), output_.data, bias_.operand());
    return output_;
}

DPTK_INLINE void LinearLayer::do_backward_parameters(const Activation& gradient) {
    bias_gradient_.run(context(), gradient, activate_ == Activate::relu ? output_.data : nullptr,
                       bias_.gradient().data());
    current_->gradients.run(gradient.data, source_.data, weight_.gradient().data());
}

DPTK_INLINE Activation LinearLayer::do_backward_input(const Activation& gradient) {
    const Activation result = input_gradients_.get(context(), gradient.n, input_);
    current_->backward_input.run(gradient.data, weight_.operand(), result.data);
    return result;
}

}  // namespace DPTK_NAMESPACE::nn::cuda
