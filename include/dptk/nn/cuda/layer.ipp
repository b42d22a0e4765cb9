#pragma once

#include "dptk/nn/cuda/layer.hpp"

#include <algorithm>
#include <variant>

#include "dptk/core/cuda/copy.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE Layer::Layer(Context& context, const Request& request, const Form& output, MakePlan make_plan)
    : context_(context), info_(request.info), output_(output), make_plan_(make_plan) {
    const Form& input = request.inputs[0].form;
    for (const ParameterSpec& spec : parameters_of(info_.operation, info_.inputs)) {
        WeightLayout layout{.outputs = output.channels, .padded_outputs = output.padded};
        if (spec.shape.size() > 1) {
            const auto* const conv = std::get_if<Conv2d>(&info_.operation);
            const std::size_t groups = conv != nullptr ? conv->groups : 1;
            layout.channels = input.channels / groups;
            layout.padded_channels = input.padded / groups;
            layout.positions = element_count(spec.shape) / output.channels / layout.channels;
        }
        parameters_.push_back(
            std::make_unique<Parameter>(context, spec.shape, layout, request.initial[parameters_.size()]));
    }
    if (!std::holds_alternative<BatchNorm2d>(info_.operation)) return;
    std::vector<float> initial(2 * output.padded);
    std::fill_n(initial.begin() + static_cast<std::ptrdiff_t>(output.padded), output.channels, 1.0F);
    statistics_ = dptk::cuda::to_device(initial, context.stream());
    batch_count_ = dptk::cuda::to_device(std::vector<std::int64_t>(1), context.stream());
    running_ = {statistics_.data(), statistics_.data() + output.padded, batch_count_.data()};
}

DPTK_INLINE std::array<Buffer, 3> Layer::buffers() const {
    const Device device = statistics_.device();
    return {Buffer{running_.mean, output_.channels, DType::f32, device},
            Buffer{running_.variance, output_.channels, DType::f32, device},
            Buffer{running_.batch_count, 1, DType::i64, device}};
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

DPTK_INLINE Memory Plan::add_workspace(std::size_t bytes, nn::detail::WorkspaceUse when) {
    workspaces.push_back({std::make_shared<Activation>(), bytes, when});
    return workspaces.back().memory;
}

DPTK_INLINE void Plan::forward(const Arguments& arguments, const Pass& pass) {
    with_name(layer_.info().label, [&] { do_forward(arguments, pass); });
}

DPTK_INLINE void Plan::backward_parameters(const Arguments& arguments, const Pass& pass) {
    with_name(layer_.info().label, [&] { do_backward_parameters(arguments, pass); });
}

DPTK_INLINE void Plan::backward_inputs(const Arguments& arguments, const Pass& pass) {
    with_name(layer_.info().label, [&] { do_backward_inputs(arguments, pass); });
}

}  // namespace DPTK_NAMESPACE::nn::cuda
