#pragma once

#include "dptk/control/health/job_state.hpp"

#include <optional>
#include <utility>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/parse.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void JobState::fail(std::string cause, Failure kind) {
    std::vector<std::weak_ptr<FailureListener>> subscribers;
    {
        const std::lock_guard lock(mutex_);
        if (failed_) return;
        cause_ = std::move(cause);
        kind_ = kind;
        failed_ = true;
        subscribers.swap(subscribers_);
    }
    changed_.notify_all();
    for (const auto& subscriber : subscribers) {
        if (const auto alive = subscriber.lock()) alive->wake();
    }
}

DPTK_INLINE std::string JobState::cause() const {
    const std::lock_guard lock(mutex_);
    return cause_;
}

DPTK_INLINE Failure JobState::kind() const {
    const std::lock_guard lock(mutex_);
    return kind_;
}

/// Returns the rank whose number a cause begins with: "rank 3 (host ...) is gone", "rank 3: ...".
[[nodiscard]] DPTK_INLINE std::optional<int> named_rank(std::string_view cause) {
    int rank = 0;
    if (next_word(cause) != "rank") return std::nullopt;
    std::string_view number = next_word(cause);
    if (number.ends_with(':')) number.remove_suffix(1);
    return parse_number(number, rank) ? std::optional(rank) : std::nullopt;
}

DPTK_INLINE void JobState::check() const {
    if (!failed()) return;
    const std::string why = cause();
    if (kind() == Failure::deadline) throw TimeoutError(why);
    throw PeerLostError("the job is broken: " + why, {.peer = named_rank(why)});
}

DPTK_INLINE bool JobState::wait_until_failed(std::chrono::milliseconds timeout) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return failed_.load(); });
}

DPTK_INLINE bool JobState::has_logged(std::string_view message) const noexcept {
    if (!is_logged_) return false;
    const std::lock_guard lock(mutex_);
    return message.find(cause_) != std::string_view::npos;
}

DPTK_INLINE void JobState::subscribe(const std::shared_ptr<FailureListener>& subscriber) {
    {
        const std::lock_guard lock(mutex_);
        if (!failed_) {
            detail::erase_if(subscribers_, [](const auto& other) { return other.expired(); });
            subscribers_.push_back(subscriber);
            return;
        }
    }
    subscriber->wake();
}

}  // namespace DPTK_NAMESPACE::detail
