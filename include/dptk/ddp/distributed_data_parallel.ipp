#pragma once

#include "dptk/ddp/distributed_data_parallel.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE DistributedDataParallel::DistributedDataParallel(ProcessGroup& group, ParameterSource source,
                                                             const DistributedDataParallelOptions& options)
    : reducer_(std::make_unique<detail::GradientReducer>(group, std::move(source), options)) {
    if (options.init_sync) reducer_->broadcast_values();
}

DPTK_INLINE void DistributedDataParallel::set_comm_hook(std::shared_ptr<CommHook> hook) {
    reducer_->set_comm_hook(std::move(hook));
}

DPTK_INLINE GradientNorm DistributedDataParallel::clip_grad_norm(double max_norm, double norm_type) {
    return reducer_->averages().clip_norm(max_norm, norm_type);
}

DPTK_INLINE void DistributedDataParallel::clip_grad_value(double limit) {
    reducer_->averages().clip_value(limit);
}

DPTK_INLINE bool DistributedDataParallel::unscale(double scale) {
    detail::GradientPostprocessing& averages = reducer_->averages();
    const detail::PurposeScope here = reducer_->purpose("unscale()");
    return averages.unscale(scale);
}

DPTK_INLINE const std::vector<ParameterRef>& DistributedDataParallel::parameters() const noexcept {
    return reducer_->parameters();
}

}  // namespace DPTK_NAMESPACE
