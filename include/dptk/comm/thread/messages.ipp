#pragma once

#include "dptk/comm/thread/messages.hpp"

#include <cstddef>
#include <cstring>
#include <utility>

#include "dptk/control/process/deadline.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ThreadMailbox::ThreadMailbox(int size, std::shared_ptr<JobState> job_state)
    : job_state_(std::move(job_state)), left_(static_cast<std::size_t>(size), false) {}

DPTK_INLINE std::shared_ptr<WorkState> ThreadMailbox::post(int rank, const Message& message) {
    auto posted = std::make_shared<Posted>(shared_from_this(), rank, message);
    std::unique_lock lock(mutex_);
    job_state_->check();
    std::list<std::shared_ptr<Posted>>& others = message.verb == Verb::send ? receives_ : sends_;
    const auto match = detail::find_if(others, [&](const auto& other) { return fit(*posted, *other); });
    if (match == others.end()) {
        (message.verb == Verb::send ? sends_ : receives_).push_back(posted);
        return posted;
    }
    const std::shared_ptr<Posted> other = *match;
    others.erase(match);
    posted->stage = other->stage = Stage::copying;
    lock.unlock();
    const std::string problem = message.verb == Verb::send ? copy(*posted, *other) : copy(*other, *posted);
    lock.lock();
    for (Posted* one : {posted.get(), other.get()}) {
        one->mismatch = problem;
        one->stage = Stage::done;
    }
    lock.unlock();
    changed_.notify_all();
    return posted;
}

DPTK_INLINE std::optional<MessageInfo> ThreadMailbox::find(int rank, int from, int tag) {
    const Posted probe(nullptr, rank, {Verb::probe, {}, from, tag});
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Posted>& sent : sends_) {
        const bool is_from = from == any_rank || sent->rank == from;
        const bool has_tag = tag == any_tag ? sent->message.tag <= max_tag : sent->message.tag == tag;
        if (sent->message.peer == rank && is_from && has_tag)
            return MessageInfo{sent->rank, sent->message.tag, sent->message.buffer.bytes()};
    }
    if (is_lost(probe)) std::rethrow_exception(why_lost(probe));
    return std::nullopt;
}

DPTK_INLINE void ThreadMailbox::withdraw(WorkState& work) {
    auto& posted = static_cast<Posted&>(work);
    std::unique_lock lock(mutex_);
    if (posted.stage == Stage::waiting) give_up(posted);
    changed_.wait(lock, [&] { return posted.stage == Stage::done; });
}

DPTK_INLINE void ThreadMailbox::leave(int rank) noexcept {
    {
        const std::lock_guard lock(mutex_);
        left_[static_cast<std::size_t>(rank)] = true;
    }
    changed_.notify_all();
}

DPTK_INLINE void ThreadMailbox::wake() noexcept {
    {
        const std::lock_guard lock(mutex_);  // a thread that has checked the condition is waiting by now
        if (job_state_->failed()) {
            while (!sends_.empty()) give_up(*std::shared_ptr(sends_.front()));
            while (!receives_.empty()) give_up(*std::shared_ptr(receives_.front()));
        }
    }
    changed_.notify_all();
}

DPTK_INLINE ThreadMailbox::Posted::Posted(std::shared_ptr<ThreadMailbox> mailbox, int rank_,
                                          const Message& message_)
    : rank(rank_), message(message_), peer(message_.peer), mailbox_(std::move(mailbox)) {}

DPTK_INLINE std::exception_ptr ThreadMailbox::Posted::error() {
    const std::lock_guard lock(mailbox_->mutex_);
    seen_ = seen_ || stage == Stage::done;
    return make_error();
}

DPTK_INLINE std::exception_ptr ThreadMailbox::Posted::unreported_error() {
    const std::lock_guard lock(mailbox_->mutex_);
    return seen_ ? nullptr : make_error();
}

DPTK_INLINE std::exception_ptr ThreadMailbox::Posted::make_error() const {
    if (lost) return mailbox_->why_lost(*this);
    if (mismatch.empty()) return nullptr;
    return std::make_exception_ptr(MismatchError(mismatch, {.rank = rank, .peer = peer}));
}

DPTK_INLINE bool ThreadMailbox::fit(const Posted& a, const Posted& b) noexcept {
    const auto expects = [](const Posted& x, const Posted& y) {
        return x.message.peer == y.rank || x.message.peer == any_rank;
    };
    return a.message.tag == b.message.tag && expects(a, b) && expects(b, a);
}

DPTK_INLINE std::string ThreadMailbox::copy(const Posted& from, Posted& to) {
    to.peer = from.rank;
    const Buffer& source = from.message.buffer;
    const Buffer& target = to.message.buffer;
    if (source.bytes() != target.bytes()) {
        return text("rank ", from.rank, " sends ", source.bytes(), " bytes to rank ", to.rank,
                    ", which expects ", target.bytes(), " bytes");
    }
    if (source.bytes() != 0) std::memcpy(target.data, source.data, source.bytes());
    return {};
}

DPTK_INLINE bool ThreadMailbox::wait(Posted& posted, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto over = [&] {
        return posted.stage == Stage::done || (posted.stage == Stage::waiting && is_lost(posted));
    };
    if (timeout == std::chrono::nanoseconds::max()) {
        changed_.wait(lock, over);
    } else if (!Deadline(std::chrono::ceil<std::chrono::milliseconds>(timeout)).wait(changed_, lock, over)) {
        return false;
    }
    if (posted.stage == Stage::waiting) give_up(posted);
    return true;
}

DPTK_INLINE void ThreadMailbox::give_up(Posted& posted) {
    posted.stage = Stage::done;
    posted.lost = true;
    (posted.message.verb == Verb::send ? sends_ : receives_).remove_if([&](const auto& other) {
        return other.get() == &posted;
    });
}

DPTK_INLINE bool ThreadMailbox::is_lost(const Posted& posted) const {
    if (job_state_->failed()) return true;
    if (posted.message.peer != any_rank) return left_[static_cast<std::size_t>(posted.message.peer)];
    for (std::size_t rank = 0; rank < left_.size(); ++rank) {
        if (static_cast<int>(rank) != posted.rank && !left_[rank]) return false;
    }
    return true;
}

DPTK_INLINE std::exception_ptr ThreadMailbox::why_lost(const Posted& posted) const {
    try {
        job_state_->check();
        if (posted.message.peer == any_rank)
            throw PeerLostError("all other ranks have left the group", {.rank = posted.rank});
        throw PeerLostError(text("rank ", posted.message.peer, " has left the group, and rank ", posted.rank,
                                 " waits for it in ", detail::pack(posted.message).describe()),
                            {.rank = posted.rank, .peer = posted.message.peer});
    } catch (const Error&) {
        return std::current_exception();
    }
}

}  // namespace DPTK_NAMESPACE::detail
