#pragma once

#include "dptk/nn/cpu/backend.hpp"

#include <variant>

#include "dptk/nn/cpu/add.hpp"
#include "dptk/nn/cpu/batch_norm.hpp"
#include "dptk/nn/cpu/convolution.hpp"
#include "dptk/nn/cpu/flatten.hpp"
#include "dptk/nn/cpu/host_layer.hpp"
#include "dptk/nn/cpu/linear.hpp"
#include "dptk/nn/cpu/pointwise.hpp"
#include "dptk/nn/cpu/pool.hpp"

namespace DPTK_NAMESPACE::nn {

namespace cpu {

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

/// Whether oneDNN computes a batch norm: it does not know of other ranks.
[[nodiscard]] DPTK_INLINE bool is_local_norm(const Operation& operation) {
    const auto* const norm = std::get_if<BatchNorm2d>(&operation);
    return norm != nullptr && !norm->is_synchronized;
}

template <class Layer, class... Arguments>
[[nodiscard]] std::unique_ptr<cpu::Layer> make(const Context& context, const Request& request,
                                               const Arguments&... arguments) {
    return std::make_unique<Layer>(context, request, arguments...);
}

[[nodiscard]] DPTK_INLINE std::unique_ptr<Layer> make_layer(const Context& context, const Request& request) {
    const OperationInfo& info = request.info;
    const PostOp post_op = info.relu == FusedReLU::follows ? PostOp::relu : PostOp::none;
    if (const auto* const linear = std::get_if<Linear>(&info.operation))
        return make<LinearLayer>(context, request, LinearPasses(context, *linear, info.inputs[0], post_op));
    if (const auto* const conv = std::get_if<Conv2d>(&info.operation))
        return make<Conv2dLayer>(context, request, Conv2dPasses(context, *conv, info.inputs[0], post_op));
    if (is_local_norm(info.operation)) return make<BatchNormLayer>(context, request);
    if (std::holds_alternative<Add>(info.operation)) return make<AddLayer>(context, request);
    if (std::holds_alternative<Flatten>(info.operation)) return make<FlattenLayer>(context, request);
    if (std::holds_alternative<MaxPool2d>(info.operation) ||
        std::holds_alternative<AvgPool2d>(info.operation) ||
        std::holds_alternative<GlobalAvgPool2d>(info.operation))
        return make<PoolLayer>(context, request);
    if (pointwise_algorithm(info.operation)) {
        const bool is_done_in_backward =
            info.relu == FusedReLU::is_done && std::holds_alternative<BatchNorm2d>(request.before);
        return make<PointwiseLayer>(context, request, !is_done_in_backward);
    }
    return make<HostLayer>(context, request);
}

}  // namespace cpu

DPTK_INLINE bool Cpu::fuses_relu(const Operation& operation) const {
    return std::holds_alternative<Linear>(operation) || std::holds_alternative<Conv2d>(operation) ||
           std::holds_alternative<Add>(operation) || cpu::is_local_norm(operation);
}

DPTK_INLINE cpu::Layout Cpu::input_layout(const Graph& graph, std::size_t batch) const {
    return cpu::row_major_layout(cpu::Layer::dims_of_batch(batch, graph.input_shape()));
}

DPTK_INLINE cpu::Layout Cpu::output_gradient_layout(const Layout& output) const {
    return cpu::row_major_layout(cpu::dims_of(output));
}

DPTK_INLINE std::unique_ptr<cpu::Layer> Cpu::make_layer(const cpu::Request& request) {
    return cpu::translate_errors(request.info.label, [&] { return cpu::make_layer(context_, request); });
}

}  // namespace DPTK_NAMESPACE::nn
