#pragma once

#include "dptk/control/activity.hpp"

#include <cstddef>
#include <utility>

#include "dptk/core/text.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE Activity::Activity(ChannelIdentity identity, Calls calls, CallReader reader)
    : identity_(std::move(identity)), calls_(calls), reader_(reader) {}

DPTK_INLINE void Activity::end() noexcept {
    state_.store(state_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
}

DPTK_INLINE Activity::Snapshot Activity::look() const noexcept {
    while (true) {
        const std::uint64_t state = state_.load(std::memory_order_acquire);
        const Call call{first_.load(std::memory_order_acquire), second_.load(std::memory_order_acquire)};
        if (state_.load(std::memory_order_relaxed) != state) continue;
        return {state / 2, state % 2 == 1, call};
    }
}

DPTK_INLINE std::string Activity::describe(const Snapshot& snapshot) const {
    const std::string call = reader_.describe(snapshot.call);
    return carries_messages() ? call : detail::text(call, " #", snapshot.sequence);
}

DPTK_INLINE int Activity::peer(const Snapshot& snapshot) const {
    if (!carries_messages() || !snapshot.active) return no_peer;
    const int peer = reader_.peer(snapshot.call);
    return peer < 0 ? any_peer : identity_.ranks[static_cast<std::size_t>(peer)];
}

DPTK_INLINE void Activity::enter(Call call, std::uint64_t step) noexcept {
    const std::uint64_t state = state_.load(std::memory_order_relaxed);
    first_.store(call.first, std::memory_order_release);  // not before the end of the call before
    second_.store(call.second, std::memory_order_release);
    state_.store(state + step, std::memory_order_release);
}

}  // namespace DPTK_NAMESPACE
