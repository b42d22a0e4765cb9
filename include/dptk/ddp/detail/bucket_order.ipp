#pragma once

#include "dptk/ddp/detail/bucket_order.hpp"

#include <algorithm>
#include <cstdint>

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::vector<std::size_t> first_launch_order(std::vector<std::size_t> sent) {
    detail::reverse(sent);
    return sent;
}

DPTK_INLINE NewOrder agree_on_order(ProcessGroup& group, bool pinned, const std::vector<std::size_t>& arrived,
                                    const std::vector<std::size_t>& before) {
    const auto as_flag = [](bool flag) { return static_cast<std::uint8_t>(flag ? 1 : 0); };
    std::uint8_t flags[] = {as_flag(pinned), as_flag(group.rank() == 0 && arrived.empty())};
    group.all_reduce(flags, ReduceOp::max);
    const bool is_pinned = flags[0] != 0;
    const bool is_unknown = flags[1] != 0;
    if (is_pinned || is_unknown) return {.is_settled = is_pinned, .order = {}};
    std::vector<std::uint64_t> order(before.size());
    if (group.rank() == 0) {
        auto next = detail::copy(arrived, order.begin());
        std::vector<bool> has_arrived;  // by parameter
        for (const std::vector<std::size_t>* parameters : {&arrived, &before})
            for (const std::size_t i : *parameters) has_arrived.resize(std::max(has_arrived.size(), i + 1));
        for (const std::size_t i : arrived) has_arrived[i] = true;
        for (const std::size_t i : before) {
            if (!has_arrived[i]) *next++ = i;
        }
    }
    group.broadcast(order);
    return {.is_settled = true, .order = {order.begin(), order.end()}};
}

}  // namespace DPTK_NAMESPACE::detail
