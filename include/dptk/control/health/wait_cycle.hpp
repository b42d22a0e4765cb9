/// The graph of ranks that wait for each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

/// Looks for a cycle among `waiting` ranks: each rank waits for the next, and the last one for the first, as
/// waits_for(rank, other) says. Returns the cycle from its smallest rank on, or an empty list if there is
/// none.
template <class WaitsFor>
[[nodiscard]] std::vector<std::size_t> find_wait_cycle(std::vector<std::size_t> waiting,
                                                       WaitsFor&& waits_for) {
    const auto next = [&](std::size_t rank) {
        return detail::find_if(waiting, [&](std::size_t other) { return waits_for(rank, other); });
    };
    const auto waits_for_none = [&](std::size_t rank) { return next(rank) == waiting.end(); };
    // Removes ranks that wait for no rank that is left over. What remains contains a cycle.
    while (true) {
        const auto some = detail::find_if(waiting, waits_for_none);
        if (some == waiting.end()) break;
        waiting.erase(some);
    }
    if (waiting.empty()) return {};
    std::size_t at = waiting.front();
    for (std::size_t step = 0; step < waiting.size(); ++step) at = *next(at);  // into the cycle
    std::vector<std::size_t> cycle = {at};
    for (std::size_t other = *next(at); other != at; other = *next(other)) cycle.push_back(other);
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    return cycle;
}

}  // namespace DPTK_NAMESPACE::detail
