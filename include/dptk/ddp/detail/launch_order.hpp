/// In which order the gradients of a model are packed into buckets.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Until the order of arrival is known: backward ends with the parameters that were registered first. Those
/// that are ignored are left out.
[[nodiscard]] std::vector<std::size_t> first_launch_order(const std::vector<bool>& ignored);

/// Whether buckets are made anew, and in which order.
struct NewOrder {
    /// Nobody needs to ask again.
    bool is_settled = false;
    /// Empty where buckets stay as they are.
    std::vector<std::size_t> order;
};

/// Rank 0's order of arrival, with those behind it that have not arrived there, in the order before. Buckets
/// stay where any rank has pinned them, and for this time where nothing has arrived on rank 0, which had no
/// samples. The same on all ranks. Collective, blocks.
[[nodiscard]] NewOrder agree_on_order(ProcessGroup& group, bool pinned,
                                      const std::vector<std::size_t>& arrived,
                                      const std::vector<std::size_t>& before);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/launch_order.ipp"
#endif
