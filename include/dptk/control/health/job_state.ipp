#pragma once

#include "dptk/control/health/job_state.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE JobState::~JobState() {
    if (failure_descriptor_ >= 0) ::close(failure_descriptor_);
}

DPTK_INLINE int JobState::failure_descriptor() {
    const std::lock_guard lock(mutex_);
    if (failure_descriptor_ < 0) failure_descriptor_ = ::eventfd(failed_ ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    return failure_descriptor_;
}

DPTK_INLINE void JobState::fail(FailureCause cause, Failure kind) {
    std::vector<std::weak_ptr<FailureListener>> subscribers;
    {
        const std::lock_guard lock(mutex_);
        if (failed_) return;
        cause_ = std::move(cause);
        kind_ = kind;
        failed_ = true;
        if (failure_descriptor_ >= 0) static_cast<void>(::eventfd_write(failure_descriptor_, 1));
        subscribers.swap(subscribers_);
    }
    changed_.notify_all();
    for (const auto& subscriber : subscribers) {
        if (const auto alive = subscriber.lock()) alive->wake();
    }
}

DPTK_INLINE std::string JobState::cause() const {
    const std::lock_guard lock(mutex_);
    return cause_.text;
}

DPTK_INLINE FailureCause JobState::full_cause() const {
    const std::lock_guard lock(mutex_);
    return cause_;
}

DPTK_INLINE Failure JobState::kind() const {
    const std::lock_guard lock(mutex_);
    return kind_;
}

DPTK_INLINE void JobState::check() const {
    if (!failed()) return;
    const FailureCause why = full_cause();
    const std::vector<int> blamed = blamed_ranks(why);
    if (kind() == Failure::deadline) throw TimeoutError(why.text);
    const ErrorContext context{.peer = blamed.empty() ? std::nullopt : std::optional(blamed.front())};
    if (is_elastic_) throw MembershipChanged("the group's members change: " + why.text, context);
    throw PeerLostError("the job is broken: " + why.text, context);
}

DPTK_INLINE bool JobState::wait_until_failed(std::chrono::milliseconds timeout) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return failed_.load(); });
}

DPTK_INLINE bool JobState::has_logged(std::string_view message) const noexcept {
    if (!is_logged_) return false;
    const std::lock_guard lock(mutex_);
    return message.find(cause_.text) != std::string_view::npos;
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

DPTK_INLINE FailureCause cause_of(const Error& error, int rank) {
    FailureCause cause{text("rank ", rank, ": ", error.what())};
    if (const std::optional<int> peer = error.peer()) cause.ranks.push_back(*peer);
    return cause;
}

}  // namespace DPTK_NAMESPACE::detail
