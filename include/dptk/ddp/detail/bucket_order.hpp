/// Decides the order of buckets, that is, in which order gradients are packed and sent: the reverse of the
/// registration order in the first step, then the order in which rank 0's gradients were marked ready.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the order before the arrival order is known, given the parameters in registration order: the
/// reverse, since backward ends with the parameters that were registered first.
[[nodiscard]] std::vector<std::size_t> first_launch_order(std::vector<std::size_t> sent);

/// Whether buckets are rebuilt, and in which order.
struct NewOrder {
    /// Whether the decision is final.
    bool is_settled = false;
    /// The new order, or empty if the buckets are not rebuilt now.
    std::vector<std::size_t> order;
};

/// Decides whether buckets are rebuilt. The new order begins with rank 0's `arrived`, the gradients that
/// became ready on rank 0, followed by all others in the order `before`. Buckets are not rebuilt if
/// `pinned` is true on any rank. If no gradient became ready on rank 0, since rank 0 had no samples, the
/// decision is not final. The result is equal on all ranks. Collective, blocks.
[[nodiscard]] NewOrder agree_on_order(ProcessGroup& group, bool pinned,
                                      const std::vector<std::size_t>& arrived,
                                      const std::vector<std::size_t>& before);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/bucket_order.ipp"
#endif
