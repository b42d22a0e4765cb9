#pragma once

#include "dptk/nn/cuda/backend.hpp"

#include <variant>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/cuda/batch_norm.hpp"
#include "dptk/nn/cuda/convolution.hpp"
#include "dptk/nn/cuda/elements.hpp"
#include "dptk/nn/cuda/linear.hpp"
#include "dptk/nn/cuda/pool.hpp"

namespace DPTK_NAMESPACE::nn {

namespace cuda {

[[nodiscard]] DPTK_INLINE bool is_of_images(const Operation& operation) {
    return std::holds_alternative<Conv2d>(operation) || std::holds_alternative<BatchNorm2d>(operation) ||
           std::holds_alternative<MaxPool2d>(operation) || std::holds_alternative<AvgPool2d>(operation) ||
           std::holds_alternative<GlobalAvgPool2d>(operation);
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

/// Throws ArgumentError if this backend lacks an option of an operation that it otherwise runs.
DPTK_INLINE void check_options(const Context& context, const Request& request) {
    const auto require = [&](bool holds, const auto&... what) {
        if (!holds)
            throw ArgumentError(dptk::detail::text(
                request.info.label, ": the GPU backend runs this operation only with ", what...));
    };
    const Operation& operation = request.info.operation;
    if (const auto* const conv = std::get_if<Conv2d>(&operation)) {
        const Form output = output_form(context, request);
        require(conv->groups == 1 || (output.padded == output.channels &&
                                      request.inputs[0].form.padded == request.inputs[0].form.channels),
                "groups = 1, or with numbers of channels that are multiples of ", context.padded_channels(1));
    }
    if (const auto* const pool = std::get_if<MaxPool2d>(&operation))
        require(pool->kernel_size.height * pool->kernel_size.width <= 65536,
                "windows of at most 65536 elements");
    if (std::holds_alternative<Add>(operation))
        require(request.inputs[0].form == request.inputs[1].form,
                "two images, or two outputs of Linear, but not with a flattened image and another value");
}

template <class P>
[[nodiscard]] PlanPointer make_plan(Layer& layer, const Layout& input) {
    return std::make_unique<P>(layer, input);
}

/// Returns a function that makes plans for the operation. Throws ArgumentError if this backend cannot run it.
[[nodiscard]] DPTK_INLINE Layer::MakePlan plan_maker(const OperationInfo& info) {
    const Operation& operation = info.operation;
    if (std::holds_alternative<Linear>(operation)) return make_plan<LinearPlan>;
    if (std::holds_alternative<Conv2d>(operation)) return make_plan<Conv2dPlan>;
    if (std::holds_alternative<BatchNorm2d>(operation)) return make_plan<BatchNormPlan>;
    if (is_of_images(operation)) return make_plan<PoolPlan>;
    if (std::holds_alternative<Flatten>(operation) || info.relu == FusedReLU::is_done)
        return make_plan<IdentityPlan>;
    if (std::holds_alternative<ReLU>(operation)) return make_plan<PointwisePlan<ReLU>>;
    if (std::holds_alternative<ReLU6>(operation)) return make_plan<PointwisePlan<ReLU6>>;
    if (std::holds_alternative<SiLU>(operation)) return make_plan<PointwisePlan<SiLU>>;
    if (std::holds_alternative<Add>(operation)) return make_plan<AddPlan>;
    if (std::holds_alternative<Dropout>(operation)) return make_plan<DropoutPlan>;
    throw ArgumentError(dptk::detail::text(
        info.label,
        ": the GPU backend cannot run this operation yet; it runs Linear, Conv2d, BatchNorm2d, ReLU, "
        "ReLU6, SiLU, Add, MaxPool2d, AvgPool2d, GlobalAvgPool2d, Flatten and Dropout"));
}

}  // namespace cuda

DPTK_INLINE Cuda::Cuda(const CudaOptions& options)
    : context_(std::make_unique<cuda::Context>(options.precision, options.stream)) {}

DPTK_INLINE bool Cuda::fuses_relu(const Operation& operation) const {
    return std::holds_alternative<Linear>(operation) || std::holds_alternative<Conv2d>(operation) ||
           std::holds_alternative<BatchNorm2d>(operation);
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
    cuda::check_options(*context_, request);
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

DPTK_INLINE std::function<void()> Cuda::plan_sum(const Memory& a, const Memory& b, const Memory& sum) {
    return [context = context_.get(), a, b, sum] {
        cuda::kernels::add(a->data, b->data, sum->data, context->type(), sum->n * sum->form.elements(),
                           context->stream());
    };
}

DPTK_INLINE void Cuda::fetch(const Buffer& buffer, void* out) const {
    dptk::cuda::detail::copy_bytes(out, buffer.data, buffer.bytes(), stream());
    dptk::cuda::synchronize(stream());
}

DPTK_INLINE void Cuda::store(const void* from, const Buffer& buffer) const {
    dptk::cuda::detail::copy_bytes(buffer.data, from, buffer.bytes(), stream());
    dptk::cuda::synchronize(stream());
}

}  // namespace DPTK_NAMESPACE::nn
