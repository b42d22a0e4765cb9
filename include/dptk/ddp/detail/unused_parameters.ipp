#pragma once

#include "dptk/ddp/detail/unused_parameters.hpp"

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void UnusedParameters::exchange(ProcessGroup& group, std::size_t parameters,
                                            const std::vector<std::size_t>& arrived) {
    used_.assign(parameters, 0);
    for (const std::size_t i : arrived) used_[i] = 1;
    group.all_reduce(used_, ReduceOp::max);
}

DPTK_INLINE bool UnusedParameters::is_permanently_unused(std::size_t parameter) const noexcept {
    return is_settled() && used_[parameter] == 0;
}

DPTK_INLINE bool UnusedParameters::operator[](std::size_t parameter) const noexcept {
    return is_enabled_ && parameter < used_.size() && used_[parameter] == 0;
}

DPTK_INLINE bool UnusedParameters::is_settled() const noexcept {
    return is_enabled_ && is_graph_static_ && detail::contains(used_, 1);
}

}  // namespace DPTK_NAMESPACE::detail
