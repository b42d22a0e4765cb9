#pragma once

#include "dptk/control/health/call_tracker.hpp"

#include <cstddef>
#include <utility>

#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE CallTracker::CallTracker(ChannelIdentity identity, Calls calls, CallReader reader)
    : identity_(std::move(identity)), calls_(calls), reader_(reader) {}

DPTK_INLINE CallTracker::Snapshot CallTracker::look() const noexcept {
    while (true) {
        const std::uint64_t state = state_.load(std::memory_order_acquire);
        const Call call{first_.load(std::memory_order_acquire), second_.load(std::memory_order_acquire)};
        if (state_.load(std::memory_order_relaxed) != state) continue;
        return {state / 2, state % 2 == 1, call};
    }
}

DPTK_INLINE std::string CallTracker::describe(const Snapshot& snapshot) const {
    const std::string call = reader_.describe(snapshot.call);
    return carries_messages() ? call : text(call, " #", snapshot.sequence);
}

DPTK_INLINE int CallTracker::peer(const Snapshot& snapshot) const {
    if (!carries_messages() || !snapshot.active) return no_peer;
    const int peer = reader_.peer(snapshot.call);
    return peer < 0 ? any_peer : identity_.ranks[static_cast<std::size_t>(peer)];
}

}  // namespace DPTK_NAMESPACE::detail
