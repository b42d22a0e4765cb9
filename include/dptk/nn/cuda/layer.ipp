#pragma once

#include "dptk/nn/cuda/layer.hpp"

#include <variant>

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE Layer::Layer(Context& context, const Request& request, const Form& output, MakePlan make_plan)
    : context_(context),
      info_(request.info),
      output_(output),
      is_after_relu_(std::holds_alternative<ReLU>(request.before)),
      make_plan_(make_plan) {
    const Form& input = request.inputs[0].form;
    for (const ParameterSpec& spec : parameters_of(info_.operation, info_.inputs)) {
        WeightLayout layout{.outputs = output.channels, .padded_outputs = output.padded};
        if (spec.shape.size() > 1) {
            layout.channels = input.channels;
            layout.padded_channels = input.padded;
            layout.positions = element_count(spec.shape) / output.channels / input.channels;
        }
        parameters_.push_back(
            std::make_unique<Parameter>(context, spec.shape, layout, request.initial[parameters_.size()]));
    }
}

DPTK_INLINE std::vector<Parameter*> Layer::parameters() {
    std::vector<Parameter*> all;
    for (const auto& parameter : parameters_) all.push_back(parameter.get());
    return all;
}

DPTK_INLINE PlanPointer Layer::plan(std::size_t /*batch*/, std::span<const Layout> inputs) {
    return with_name(info_.label, [&] { return make_plan_(*this, inputs[0]); });
}

DPTK_INLINE Plan::Plan(Layer& layer, const Layout& input) : layer_(layer), input_(input) {
    output = {.n = input.n, .form = layer.output_form()};
}

DPTK_INLINE void Plan::forward(const Arguments& arguments, const Pass& /*pass*/) {
    with_name(layer_.info().label, [&] { do_forward(arguments); });
}

DPTK_INLINE void Plan::backward_parameters(const Arguments& arguments, const Pass& /*pass*/) {
    with_name(layer_.info().label, [&] { do_backward_parameters(arguments); });
}

DPTK_INLINE void Plan::backward_inputs(const Arguments& arguments, const Pass& /*pass*/) {
    with_name(layer_.info().label, [&] { do_backward_inputs(arguments); });
}

}  // namespace DPTK_NAMESPACE::nn::cuda
