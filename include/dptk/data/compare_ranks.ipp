#pragma once

#include "dptk/data/compare_ranks.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string sampler_table(const DistributedSampler& sampler) {
    const DistributedSamplerOptions& options = sampler.options();
    return text("samples ", sampler.dataset_size(), "\nreplicas ", sampler.num_replicas(), "\nshuffle ",
                options.shuffle, "\nseed ", options.seed, "\ndrop_last ", options.drop_last, "\npadding ",
                options.padding == Padding::repeat ? "repeat" : "none", "\norder ",
                options.order == Order::torch ? "torch" : "computed", "\nepoch ", sampler.epoch());
}

}  // namespace DPTK_NAMESPACE::detail
