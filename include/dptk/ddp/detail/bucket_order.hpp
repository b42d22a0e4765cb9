/// Decides the order of buckets, that is, in which order gradients are packed and sent: the reverse of the
/// registration order in the first step, then the order in which rank 0's gradients were marked ready.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the order before the arrival order is known: the reverse of the registration order, since
/// backward ends with the parameters that were registered first. Ignored parameters are left out.
[[nodiscard]] std::vector<std::size_t> first_launch_order(const std::vector<bool>& ignored);

/// Whether buckets are rebuilt, and in which order.
struct NewOrder {
    /// Whether the decision is final.
    bool is_settled = false;
    /// Empty if the buckets are unchanged.
    std::vector<std::size_t> order;
};

/// Returns rank 0's arrival order, followed by the gradients that have not arrived there, in the order
/// `before`. Buckets are not rebuilt if any rank has pinned them. If nothing has arrived on rank 0, which
/// then had no samples, they are not rebuilt yet. The result is equal on all ranks. Collective, blocks.
[[nodiscard]] NewOrder agree_on_order(ProcessGroup& group, bool pinned,
                                      const std::vector<std::size_t>& arrived,
                                      const std::vector<std::size_t>& before);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/bucket_order.ipp"
#endif
