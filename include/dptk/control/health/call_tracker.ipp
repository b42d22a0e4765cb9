#pragma once

#include "dptk/control/health/call_tracker.hpp"

#include <cstddef>
#include <utility>

#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE CallTracker::CallTracker(ChannelIdentity identity, Calls calls, CallReader reader)
    : identity_(std::move(identity)), calls_(calls), reader_(reader) {}

DPTK_INLINE CallTracker::Snapshot CallTracker::look() const noexcept {
    while (true) {
        const std::uint64_t state = state_.load(std::memory_order_acquire);
        const Call call{first_.load(std::memory_order_acquire), second_.load(std::memory_order_acquire)};
        const std::uint64_t last_resumed = last_resumed_.load(std::memory_order_acquire);
        if (state_.load(std::memory_order_relaxed) != state) continue;
        const bool is_active = state % 2 == 1;
        const bool is_known = is_active && last_resumed != state / 2;
        return {state / 2, is_active, call,
                is_known ? fnv1a({reinterpret_cast<const char*>(&call), sizeof call}) : 0};
    }
}

DPTK_INLINE void CallTracker::set_purpose(const CallPurpose& purpose) noexcept {
    step_.store(purpose.step, std::memory_order_relaxed);
    // Another thread may read the owner after it has read the previous purpose: it is never null again.
    if (purpose.owner != nullptr) owner_.store(purpose.owner, std::memory_order_relaxed);
    purpose_.store(purpose.call, std::memory_order_release);
}

DPTK_INLINE std::string CallTracker::describe(const Snapshot& snapshot) const {
    std::string call = reader_.describe(snapshot.call);
    if (!carries_messages()) call += text(" #", snapshot.sequence);
    const char* const purpose = purpose_.load(std::memory_order_acquire);
    if (purpose == nullptr || snapshot.sequence == 0) return call;
    const std::uint64_t step = step_.load(std::memory_order_relaxed);
    const std::string number = step == CallPurpose::no_step ? std::string() : text(", step ", step, ",");
    return text(purpose, number, " of ", owner_.load(std::memory_order_relaxed), ": ", call);
}

DPTK_INLINE std::optional<std::string> CallTracker::describe_earlier(std::uint64_t number) const {
    const std::optional<Call> call = history_ ? history_->call(number) : std::nullopt;
    if (!call) return std::nullopt;
    return text(reader_.describe(*call), " #", number);
}

DPTK_INLINE int CallTracker::peer(const Snapshot& snapshot) const {
    if (!carries_messages() || !snapshot.active) return no_peer;
    const int peer = reader_.peer(snapshot.call);
    return peer < 0 ? any_peer : identity_.ranks[static_cast<std::size_t>(peer)];
}

}  // namespace DPTK_NAMESPACE::detail
