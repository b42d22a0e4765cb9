#pragma once

#include "dptk/nn/cpu/backend.hpp"

#include <memory>
#include <optional>
#include <variant>
#include "dptk/nn/cpu/add.hpp"
#include "dptk/nn/cpu/batch_norm.hpp"
#include "dptk/nn/cpu/convolution.hpp"
#include "dptk/nn/cpu/flatten.hpp"
#include "dptk/nn/cpu/host_plan.hpp"
#include "dptk/nn/cpu/linear.hpp"
#include "dptk/nn/cpu/max_pool.hpp"
#include "dptk/nn/cpu/padded_linear.hpp"
#include "dptk/nn/cpu/pointwise.hpp"
#include "dptk/nn/cpu/pool.hpp"
#include "dptk/nn/cpu/small_convolution.hpp"
#include "dptk/nn/cpu/weighted_plan.hpp"

namespace DPTK_NAMESPACE::nn {

namespace cpu {

/// Returns the layout of the weight of a Linear or Conv2d, in f32.
[[nodiscard]] DPTK_INLINE std::optional<Layout> weight_layout(Context context, const Request& request) {
    const OperationInfo& info = request.info;
    const Layout& input = request.inputs[0];
    if (SmallConv2dPlan::is_faster(context, info, input))
        return SmallConv2dPlan::weight_layout(Conv2dPasses(context, info).weight_dims(input));
    const bool is_linear = std::holds_alternative<Linear>(info.operation);
    if (is_linear && PaddedLinearPlan::is_faster(context, info, input))
        return PaddedLinearPlan::weight_layout(LinearPasses(context, info).weight_dims(input));
    context.operand_type = ElementType::f32;
    const auto of = [&](const auto& passes) {
        return passes.describe_forward(input, any_layout(passes.weight_dims(input))).weights_desc();
    };
    if (is_linear) return of(LinearPasses(context, info));
    if (std::holds_alternative<Conv2d>(info.operation)) return of(Conv2dPasses(context, info));
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

DPTK_INLINE PlanPointer Layer::make_plan(std::size_t batch, std::span<const Layout> inputs) {
    const Operation& operation = info_.operation;
    if (PaddedLinearPlan::has_weight(*this)) return std::make_unique<PaddedLinearPlan>(*this, inputs[0]);
    if (std::holds_alternative<Linear>(operation))
        return std::make_unique<WeightedPlan<LinearPasses>>(*this, inputs[0]);
    if (SmallConv2dPlan::has_weight(*this)) return std::make_unique<SmallConv2dPlan>(*this, inputs[0]);
    if (std::holds_alternative<Conv2d>(operation))
        return std::make_unique<WeightedPlan<Conv2dPasses>>(*this, inputs[0]);
    if (is_local_norm(operation)) return std::make_unique<BatchNormPlan>(*this, batch, inputs[0]);
    if (std::holds_alternative<Add>(operation)) return std::make_unique<AddPlan>(*this, inputs[0], inputs[1]);
    if (std::holds_alternative<Flatten>(operation)) return std::make_unique<FlattenPlan>(*this, inputs[0]);
    if (MaxPoolPlan::is_faster(*this, inputs[0])) return std::make_unique<MaxPoolPlan>(*this, inputs[0]);
    if (is_pool(operation)) return std::make_unique<PoolPlan>(*this, inputs[0]);
    if (pointwise_algorithm(operation)) return std::make_unique<PointwisePlan>(*this, inputs[0]);
    return std::make_unique<HostPlan>(*this, batch, inputs);
}

}  // namespace cpu

DPTK_INLINE Cpu::Cpu(const CpuOptions& options) {
    if (options.precision != Precision::bf16) return;
    if (!cpu::has_bf16_products())
        throw ArgumentError(
            "Cpu: Precision::bf16 requires a processor with AVX512_BF16, which oneDNN may use");
    context_.operand_type = cpu::ElementType::bf16;
}

DPTK_INLINE bool Cpu::fuses_relu(const Operation& operation) const {
    return std::holds_alternative<Linear>(operation) || std::holds_alternative<Conv2d>(operation) ||
           std::holds_alternative<Add>(operation) || cpu::is_local_norm(operation);
}

}  // namespace DPTK_NAMESPACE::nn
