#pragma once

#include "dptk/optim/cuda/fused_optimizers.hpp"

#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::cuda {

DPTK_INLINE FusedOptimizer::FusedOptimizer(double lr, std::size_t states, StreamRef stream)
    : states_(states), stream_(stream), progress_(1) {
    host_progress_.value.lr = lr;
    send_progress();
}

DPTK_INLINE void FusedOptimizer::set_lr(double lr) {
    dptk::detail::require_not_negative("FusedOptimizer", "lr", lr);
    if (lr == host_progress_.value.lr) return;
    fetch_progress();
    host_progress_.value.lr = lr;
    send_progress();
}

DPTK_INLINE OptimizerState<float> FusedOptimizer::state(std::size_t slot) {
    OptimizerState<float> copy;
    if (slot >= state_.size()) return copy;
    fetch_progress();
    copy.steps = host_progress_.value.step - 1;
    for (const DeviceBuffer<float>& array : state_[slot])
        copy.arrays.push_back(to_host(array.span(), stream_));
    return copy;
}

DPTK_INLINE void FusedOptimizer::set_state(std::size_t slot, const OptimizerState<float>& state) {
    if (state.arrays.size() != states_)
        throw ArgumentError(dptk::detail::text("FusedOptimizer: expected a state of ", states_,
                                               " arrays for slot ", slot, ", got ", state.arrays.size()));
    if (slot >= state_.size()) state_.resize(slot + 1);
    state_[slot].clear();
    for (const std::vector<float>& array : state.arrays) state_[slot].push_back(to_device(array, stream_));
    fetch_progress();
    host_progress_.value.step = state.steps + 1;
    send_progress();
}

DPTK_INLINE std::span<const detail::OptimizerTensor> FusedOptimizer::tensors(
    std::span<const ParameterRef> parameters) {
    if (state_.empty()) {
        for (const ParameterRef& parameter : parameters) {
            std::vector<DeviceBuffer<float>>& own = state_.emplace_back();
            for (std::size_t s = 0; s < states_; ++s) {
                own.emplace_back(parameter.count);
                check(cudaMemsetAsync(own.back().data(), 0, parameter.count * sizeof(float), stream_.get()),
                      "cudaMemsetAsync");
            }
        }
    }
    if (state_.size() != parameters.size())
        throw ArgumentError(dptk::detail::text("FusedOptimizer: expected ", state_.size(),
                                               " parameters, as in the first step, got ", parameters.size()));
    tensors_.clear();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const ParameterRef& parameter = parameters[i];
        if (parameter.dtype != DType::f32 || parameter.gradient_buffer().dtype != DType::f32 ||
            parameter.device.type != DeviceType::cuda)
            throw ArgumentError(dptk::detail::text(
                "FusedOptimizer: parameter ", parameter.name, ": expected f32 in device memory, got ",
                dtype_name(parameter.dtype), " with a gradient of ",
                dtype_name(parameter.gradient_buffer().dtype), " in ",
                parameter.device.type == DeviceType::cuda ? "device" : "host", " memory"));
        tensors_.push_back({.value = static_cast<float*>(parameter.value),
                            .gradient = static_cast<const float*>(parameter.gradient),
                            .first = states_ > 0 ? state_[i][0].data() : nullptr,
                            .second = states_ > 1 ? state_[i][1].data() : nullptr,
                            .count = parameter.count});
    }
    return tensors_;
}

DPTK_INLINE detail::OptimizerProgress* FusedOptimizer::progress() noexcept {
    return &progress_.data()->value;
}

DPTK_INLINE void FusedOptimizer::fetch_progress() {
    const double lr = host_progress_.value.lr;
    detail::copy_bytes(&host_progress_, progress_.data(), sizeof host_progress_, stream_);
    synchronize(stream_);
    host_progress_.value.lr = lr;
}

DPTK_INLINE void FusedOptimizer::send_progress() {
    detail::copy_bytes(progress_.data(), &host_progress_, sizeof host_progress_, stream_);
    synchronize(stream_);
}

}  // namespace DPTK_NAMESPACE::cuda

namespace DPTK_NAMESPACE {

DPTK_INLINE FusedSGD::FusedSGD(SGDOptions options, StreamRef stream)
    : FusedOptimizer(dptk::SGD<float>(options).lr(), options.momentum == 0 ? 0 : 1, stream),
      options_(options) {
    if (options.nesterov || options.dampening != 0)
        throw ArgumentError("FusedSGD: nesterov and dampening are only available in host memory");
}

DPTK_INLINE void FusedSGD::step(std::span<const ParameterRef> parameters) {
    cuda::detail::sgd_step(tensors(parameters),
                           {static_cast<float>(options_.momentum), static_cast<float>(options_.weight_decay)},
                           progress(), stream());
}

DPTK_INLINE void FusedAdam::step(std::span<const ParameterRef> parameters) {
    cuda::detail::adam_step(tensors(parameters), options_, progress(), stream());
}

DPTK_INLINE FusedAdam::FusedAdam(const AdamOptions& options, bool is_decoupled, double lr, StreamRef stream)
    : FusedOptimizer(lr, 2, stream),
      options_{options.beta1, options.beta2, options.eps, options.weight_decay, is_decoupled} {}

}  // namespace DPTK_NAMESPACE
