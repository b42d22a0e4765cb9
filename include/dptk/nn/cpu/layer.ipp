#pragma once

#include "dptk/nn/cpu/layer.hpp"

#include <optional>
#include <variant>

#include "dptk/nn/cpu/add.hpp"
#include "dptk/nn/cpu/batch_norm.hpp"
#include "dptk/nn/cpu/convolution.hpp"
#include "dptk/nn/cpu/flatten.hpp"
#include "dptk/nn/cpu/host_plan.hpp"
#include "dptk/nn/cpu/linear.hpp"
#include "dptk/nn/cpu/pointwise.hpp"
#include "dptk/nn/cpu/pool.hpp"
#include "dptk/nn/cpu/weighted_plan.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Dims dims_of_batch(std::size_t batch, const Shape& sample) {
    Dims dims{static_cast<dnnl::memory::dim>(batch)};
    dims.insert(dims.end(), sample.begin(), sample.end());
    return dims;
}

/// Returns the layout that oneDNN chooses for the weight of a Linear or Conv2d.
[[nodiscard]] DPTK_INLINE std::optional<Layout> weight_layout(const Context& context,
                                                              const Request& request) {
    const auto of = [&](const auto& passes) {
        const Layout any = any_layout(passes.weight_dims(request.inputs[0]));
        return passes.describe_forward(request.inputs[0], any).weights_desc();
    };
    if (std::holds_alternative<Linear>(request.info.operation))
        return of(LinearPasses(context, request.info));
    if (std::holds_alternative<Conv2d>(request.info.operation))
        return of(Conv2dPasses(context, request.info));
    return std::nullopt;
}

DPTK_INLINE Layer::Layer(const Context& context, const Request& request)
    : context_(context),
      info_(request.info),
      statistics_(request.statistics),
      follows_norm_(std::holds_alternative<BatchNorm2d>(request.before)),
      passes_images_(info_.feeds_only_linear &&
                     request.inputs[0] != row_major_layout(dims_of(request.inputs[0]))) {
    const std::optional<Layout> chosen = weight_layout(context, request);
    const std::vector<ParameterSpec> specs = parameters_of(info_.operation, info_.inputs);
    for (std::size_t i = 0; i < specs.size(); ++i) {
        const Layout rows = row_major_layout({specs[i].shape.begin(), specs[i].shape.end()});
        parameters_.push_back(std::make_unique<Parameter>(
            context, specs[i].shape, i == 0 && chosen ? *chosen : rows, request.initial[i]));
    }
    const auto batch = static_cast<std::size_t>(dims_of(request.inputs[0])[0]);
    nominal_output_ = make_plan(batch, request.inputs)->output;
}

DPTK_INLINE std::vector<Parameter*> Layer::parameters() const {
    std::vector<Parameter*> all;
    for (const auto& parameter : parameters_) all.push_back(parameter.get());
    return all;
}

DPTK_INLINE PlanPointer Layer::plan(std::size_t batch, std::span<const Layout> inputs) {
    return translate_errors(info_.label, [&] { return make_plan(batch, inputs); });
}

DPTK_INLINE PlanPointer Layer::make_plan(std::size_t batch, std::span<const Layout> inputs) {
    const Operation& operation = info_.operation;
    if (std::holds_alternative<Linear>(operation))
        return std::make_unique<WeightedPlan<LinearPasses>>(*this, inputs[0]);
    if (std::holds_alternative<Conv2d>(operation))
        return std::make_unique<WeightedPlan<Conv2dPasses>>(*this, inputs[0]);
    if (is_local_norm(operation)) return std::make_unique<BatchNormPlan>(*this, batch, inputs[0]);
    if (std::holds_alternative<Add>(operation)) return std::make_unique<AddPlan>(*this, inputs[0], inputs[1]);
    if (std::holds_alternative<Flatten>(operation)) return std::make_unique<FlattenPlan>(*this, inputs[0]);
    if (is_pool(operation)) return std::make_unique<PoolPlan>(*this, inputs[0]);
    if (pointwise_algorithm(operation)) return std::make_unique<PointwisePlan>(*this, inputs[0]);
    return std::make_unique<HostPlan>(*this, batch, inputs);
}

DPTK_INLINE std::vector<Layout> Plan::plan_backward(const Layout& output_gradient) {
    return translate_errors(info().label, [&] { return do_plan_backward(output_gradient); });
}

DPTK_INLINE void Plan::forward(const Arguments& arguments, const Pass& pass) {
    translate_errors(info().label, [&] { do_forward(arguments, pass); });
}

DPTK_INLINE void Plan::backward_parameters(const Arguments& arguments, const Pass& pass) {
    translate_errors(info().label, [&] { do_backward_parameters(arguments, pass); });
}

DPTK_INLINE void Plan::backward_inputs(const Arguments& arguments, const Pass& pass) {
    translate_errors(info().label, [&] { do_backward_inputs(arguments, pass); });
}

DPTK_INLINE dnnl::memory Plan::add_workspace(const Layout& layout, WorkspaceUse when) {
    const dnnl::memory memory = unbound(context(), layout);
    workspaces.push_back({memory, layout.get_size(), when});
    return memory;
}

DPTK_INLINE Converter Plan::add_converter(const Layout& from, const Layout& wanted, WorkspaceUse when) {
    if (from == wanted) return {};
    return {context(), from, add_workspace(wanted, when)};
}

DPTK_INLINE Store::Store(const Context& context, const dnnl::memory& from)
    : to_(unbound(context, row_major_layout(dims_of(from.get_desc())))), copy_(reorder(context, from, to_)) {}

DPTK_INLINE void Store::operator()(Tensor<float>& to) {
    rebind_memory(to_, to.data());
    translate_errors("output", [&] { copy_.run(); });
}

DPTK_INLINE Sum::Sum(const Context& context, const dnnl::memory& a, const dnnl::memory& b,
                     const dnnl::memory& sum)
    : add_(context, describe_sum(context.engine, sum.get_desc(), {a.get_desc(), b.get_desc()}),
           {{DNNL_ARG_MULTIPLE_SRC, a}, {DNNL_ARG_MULTIPLE_SRC + 1, b}, {DNNL_ARG_DST, sum}}) {}

DPTK_INLINE void Sum::operator()() {
    translate_errors("sum of gradients", [&] { add_.run(); });
}

}  // namespace DPTK_NAMESPACE::nn::cpu
