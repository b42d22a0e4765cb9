#pragma once

#include "dptk/comm/gloo/inbox.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "dptk/control/process/background_thread.hpp"
#include "dptk/control/process/deadline.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE GlooInbox::GlooInbox(std::shared_ptr<GlooMesh> mesh) : mesh_(std::move(mesh)) {
    const gloo::Context& context = *mesh_->context();
    for (int rank = 0; rank < context.size; ++rank)
        if (rank != context.rank) others_.push_back(rank);
}

DPTK_INLINE GlooInbox::~GlooInbox() {
    if (!listener_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
        if (waiting_on_ != nullptr) waiting_on_->abortWaitRecv();
    }
    changed_.notify_all();
    listener_.join();
}

DPTK_INLINE std::shared_ptr<GlooInbox::Wanted> GlooInbox::want(int from, int tag) {
    const auto wanted = std::make_shared<Wanted>(Wanted{from, tag, {}});
    const std::lock_guard lock(mutex_);
    const auto arrived =
        detail::find_if(unexpected_, [&](const Arrived& each) { return matches(from, tag, each); });
    if (arrived != unexpected_.end()) {
        wanted->found = *arrived;
        unexpected_.erase(arrived);
        return wanted;
    }
    wanted_.push_back(wanted);
    post_missing();
    return wanted;
}

DPTK_INLINE GlooInbox::Arrived GlooInbox::await(const Wanted& wanted) {
    std::unique_lock lock(mutex_);
    while (!wanted.found) {
        if (waiting_on_ != nullptr) {
            changed_.wait(lock);
        } else {
            receive_one(lock);
        }
    }
    return *wanted.found;
}

DPTK_INLINE void GlooInbox::forget(const std::shared_ptr<Wanted>& wanted) noexcept {
    const std::lock_guard lock(mutex_);
    wanted_.remove(wanted);
}

DPTK_INLINE std::optional<GlooInbox::Arrived> GlooInbox::find(int from, int tag) {
    const std::lock_guard lock(mutex_);
    for (const Arrived& arrived : unexpected_) {
        const int its_tag = static_cast<int>(arrived.header.tag);
        if (matches(from, tag == any_tag ? its_tag : tag, arrived)) return arrived;
    }
    if (is_listening_ || is_stopping_) return std::nullopt;
    if (listener_.joinable()) listener_.join();  // it has ended
    is_listening_ = true;
    listener_ = start_background_thread([this] { listen(); });
    return std::nullopt;
}

DPTK_INLINE bool GlooInbox::matches(int from, int tag, const Arrived& arrived) noexcept {
    return static_cast<int>(arrived.header.tag) == tag && (from == any_rank || from == arrived.from);
}

DPTK_INLINE void GlooInbox::post_missing() {
    const std::size_t needed = wanted_.size() + (is_listening_ ? 1 : 0);
    std::size_t posted = posted_.size() + (waiting_on_ != nullptr ? 1 : 0);
    for (; posted < needed; ++posted) {
        auto next = std::make_unique<Posted>();
        next->buffer = mesh_->context()->createUnboundBuffer(&next->header, sizeof next->header);
        next->buffer->recv(others_, slot);
        posted_.push_back(std::move(next));
    }
}

DPTK_INLINE void GlooInbox::receive_one(std::unique_lock<std::mutex>& lock) {
    post_missing();
    const std::unique_ptr<Posted> next = std::move(posted_.front());
    posted_.pop_front();
    waiting_on_ = next->buffer.get();
    lock.unlock();
    Arrived arrived;
    std::exception_ptr failure;
    try {
        next->buffer->waitRecv(&arrived.from, longest_wait);
    } catch (...) {
        failure = std::current_exception();
    }
    lock.lock();
    waiting_on_ = nullptr;
    changed_.notify_all();
    if (failure) std::rethrow_exception(failure);
    arrived.header = next->header;
    const auto first = detail::find_if(wanted_, [&](const std::shared_ptr<Wanted>& wanted) {
        return matches(wanted->from, wanted->tag, arrived);
    });
    if (first == wanted_.end()) {
        unexpected_.push_back(arrived);
        ++unexpected_count_;
    } else {
        (*first)->found = arrived;
        wanted_.erase(first);
    }
}

DPTK_INLINE void GlooInbox::listen() {
    const auto receive = [this] {
        std::unique_lock lock(mutex_);
        const std::size_t before = unexpected_count_;
        while (unexpected_count_ == before && !is_stopping_) {
            if (waiting_on_ != nullptr) {
                changed_.wait(lock);
            } else {
                receive_one(lock);
            }
        }
    };
    try {
        mesh_->run("probe", [&] {
            try {
                receive();
            } catch (const gloo::IoException&) {
                if (!is_stopping_) throw;  // otherwise the destructor has aborted the wait
            }
        });
    } catch (const std::exception&) {  // the next call of the program throws
    }
    const std::lock_guard lock(mutex_);
    is_listening_ = false;
}

}  // namespace DPTK_NAMESPACE::detail
