#pragma once

#include "dptk/nn/cuda/backend.hpp"

#include <string_view>
#include <variant>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/cuda/convolution.hpp"
#include "dptk/nn/cuda/linear.hpp"
#include "dptk/nn/cuda/max_pool.hpp"
#include "dptk/nn/cuda/relu.hpp"

namespace DPTK_NAMESPACE::nn {

namespace cuda {

/// Returns the only value of an option with which this backend runs an operation, if the operation has
/// another value; otherwise an empty text.
[[nodiscard]] DPTK_INLINE std::string_view required_option(const Operation& operation) {
    const auto is_square = [](const Size2d& size) { return size.height == size.width; };
    if (const auto* const linear = std::get_if<Linear>(&operation)) {
        if (!linear->bias) return "bias = true";
    }
    if (const auto* const conv = std::get_if<Conv2d>(&operation)) {
        if (!is_square(conv->kernel_size) || !is_square(conv->stride) || !is_square(conv->padding))
            return "a square kernel_size, stride and padding";
        if (conv->dilation != Size2d(1)) return "dilation = 1";
        if (conv->groups != 1) return "groups = 1";
        if (!conv->bias) return "bias = true";
    }
    if (const auto* const pool = std::get_if<MaxPool2d>(&operation)) {
        if (!is_square(pool->kernel_size)) return "a square kernel_size";
        if (pool->stride != pool->kernel_size) return "stride = kernel_size";
        if (pool->padding != Size2d(0)) return "padding = 0";
    }
    return "";
}

template <class P>
[[nodiscard]] PlanPointer make_plan(Layer& layer, const Layout& input) {
    return std::make_unique<P>(layer, input);
}

/// Returns a function that makes plans for the operation. Throws ArgumentError if this backend cannot run it.
[[nodiscard]] DPTK_INLINE Layer::MakePlan plan_maker(const OperationInfo& info) {
    if (const std::string_view option = required_option(info.operation); !option.empty())
        throw ArgumentError(
            dptk::detail::text(info.label, ": the GPU backend runs this operation only with ", option));
    if (std::holds_alternative<Linear>(info.operation)) return make_plan<LinearPlan>;
    if (std::holds_alternative<Conv2d>(info.operation)) return make_plan<Conv2dPlan>;
    if (std::holds_alternative<MaxPool2d>(info.operation)) return make_plan<MaxPool2dPlan>;
    if (std::holds_alternative<Flatten>(info.operation) || info.relu == FusedReLU::is_done)
        return make_plan<IdentityPlan>;
    if (std::holds_alternative<ReLU>(info.operation)) return make_plan<ReLUPlan>;
    throw ArgumentError(dptk::detail::text(info.label,
                                           ": the GPU backend cannot run this operation yet; it runs Linear, "
                                           "Conv2d, ReLU, MaxPool2d and Flatten"));
}

[[nodiscard]] DPTK_INLINE bool is_of_images(const Operation& operation) {
    return std::holds_alternative<Conv2d>(operation) || std::holds_alternative<MaxPool2d>(operation);
}

[[nodiscard]] DPTK_INLINE Form image_form(const Context& context, const Shape& shape) {
    return {shape[0], context.padded_channels(shape[0]), shape[1], shape[2]};
}

[[nodiscard]] DPTK_INLINE Form output_form(const Context& context, const Request& request) {
    const OperationInfo& info = request.info;
    if (is_of_images(info.operation)) return image_form(context, info.output);
    if (std::holds_alternative<Linear>(info.operation)) return {info.output[0], info.output[0]};
    return request.inputs[0].form;
}

}  // namespace cuda

DPTK_INLINE Cuda::Cuda(const CudaOptions& options)
    : context_(std::make_unique<cuda::Context>(options.precision, options.stream)) {}

DPTK_INLINE bool Cuda::fuses_relu(const Operation& operation) const {
    return std::holds_alternative<Linear>(operation) || std::holds_alternative<Conv2d>(operation);
}

DPTK_INLINE cuda::Layout Cuda::input_layout(const Graph& graph, std::size_t batch) const {
    const Shape& shape = graph.input_shape();
    const bool is_image = dptk::detail::any_of(
        graph.nodes(), [](const GraphNode& node) { return cuda::is_of_images(node.operation); });
    if (is_image) return {.n = batch, .form = cuda::image_form(*context_, shape)};
    return {.n = batch, .form = {element_count(shape), element_count(shape)}};
}

DPTK_INLINE std::unique_ptr<cuda::Layer> Cuda::make_layer(const cuda::Request& request) {
    const cuda::Layer::MakePlan make_plan = cuda::plan_maker(request.info);
    auto layer =
        std::make_unique<Layer>(*context_, request, cuda::output_form(*context_, request), make_plan);
    for (Parameter* parameter : layer->parameters()) parameters_.push_back(parameter);
    return layer;
}

DPTK_INLINE std::byte* Cuda::reserve(std::size_t bytes) {
    if (bytes > memory_.size()) {
        context_->note_reallocation();
        memory_ = {};  // freed first, so that there need not be room for both
        memory_ = dptk::cuda::DeviceBuffer<std::byte>(bytes);
    }
    return memory_.data();
}

DPTK_INLINE std::size_t Cuda::bytes(const Layout& layout) const {
    return layout.n * layout.form.elements() * context_->type_size();
}

DPTK_INLINE cuda::Memory Cuda::make_memory(const Layout& layout) const {
    return std::make_shared<cuda::Activation>(cuda::Activation{nullptr, layout.n, layout.form});
}

DPTK_INLINE void Cuda::begin_forward() {
    if (context_->type() == DType::f32) return;
    converted_.clear();
    for (Parameter* parameter : parameters_)
        converted_.push_back({parameter->values().data(), parameter->copy(), parameter->count()});
    cuda::kernels::convert_all(converted_, context_->stream());
}

DPTK_INLINE void Cuda::load(const Tensor& tensor, Memory& memory) const {
    const cuda::Form& form = memory->form;
    cuda::kernels::to_channels_last(tensor.data(), memory->data, context_->type(), memory->n, form.channels,
                                    form.padded, form.pixels(), context_->stream());
}

DPTK_INLINE std::function<void(DeviceTensor<float>&)> Cuda::plan_store(const Memory& memory) {
    context_->note_reallocation();  // the network's tensors may grow with the batch size
    return [context = context_.get(), memory](Tensor& tensor) {
        const cuda::Form& form = memory->form;
        cuda::kernels::from_channels_last(memory->data, context->type(), tensor.data(), memory->n,
                                          form.channels, form.padded, form.pixels(), context->stream());
    };
}

}  // namespace DPTK_NAMESPACE::nn
