#pragma once

#include "dptk/comm/gloo.hpp"

#include "dptk/comm/detail/store_group.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE Fit gloo_fit(const JobRequest& request) {
    if (is_tcp_available() && request.backend != GlooFactory::name) return Fit::none;
    return fit_of_store(request, GlooFactory::name);
}

DPTK_INLINE ProcessGroup create_gloo_group(const JobRequest& request) {
    return create_store_group<GlooFactory>(request);
}

DPTK_INLINE EngineOwner create_gloo_subgroup(const SubgroupRequest& request) {
    return create_store_subgroup<GlooFactory>(request);
}

}  // namespace DPTK_NAMESPACE::detail
