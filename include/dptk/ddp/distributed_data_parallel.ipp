#pragma once

#include "dptk/ddp/distributed_data_parallel.hpp"

#include "dptk/ddp/detail/gradient_reducer.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE DistributedDataParallel::DistributedDataParallel(ProcessGroup& group, ParameterSource source,
                                                             const DistributedDataParallelOptions& options)
    : DataParallelSteps(detail::GradientReducer::make(group, std::move(source), options)) {
    if (options.init_sync && !group.is_elastic()) reducer().broadcast_values();
}

DPTK_INLINE void DistributedDataParallel::check() {
    reducer().check();
}

DPTK_INLINE void DistributedDataParallel::broadcast_values(int root) {
    reducer().broadcast_values(root);
}

DPTK_INLINE void DistributedDataParallel::set_comm_hook(std::shared_ptr<CommHook> hook) {
    reducer().set_comm_hook(std::move(hook));
}

DPTK_INLINE GradientNorm DistributedDataParallel::clip_grad_norm(double max_norm, double norm_type) {
    return reducer().averages().clip_norm(max_norm, norm_type);
}

DPTK_INLINE void DistributedDataParallel::clip_grad_value(double limit) {
    reducer().averages().clip_value(limit);
}

DPTK_INLINE bool DistributedDataParallel::unscale(double scale) {
    detail::GradientPostprocessing& averages = reducer().averages();
    const detail::PurposeScope here = reducer().purpose("unscale()");
    return averages.unscale(scale);
}

}  // namespace DPTK_NAMESPACE
