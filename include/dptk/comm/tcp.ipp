#pragma once

#include "dptk/comm/tcp.hpp"

#include "dptk/comm/detail/store_group.hpp"
#include "dptk/comm/tcp/mesh.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE Fit tcp_fit(const JobRequest& request) {
    return fit_of_store(request, TcpFactory::name);
}

DPTK_INLINE ProcessGroup create_tcp_group(const JobRequest& request) {
    return create_store_group<TcpFactory>(request);
}

DPTK_INLINE EngineOwner create_tcp_subgroup(const SubgroupRequest& request) {
    return create_store_subgroup<TcpFactory>(request);
}

}  // namespace DPTK_NAMESPACE::detail
