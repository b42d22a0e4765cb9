#pragma once

#include "dptk/comm/gloo/messages.hpp"

#include <exception>
#include <utility>
#include <vector>

#include "dptk/control/process/background_thread.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

inline constexpr std::uint64_t header_slot = std::uint64_t{1} << 62;
inline constexpr std::uint64_t data_slots = std::uint64_t{1} << 63;

DPTK_INLINE GlooInbox::GlooInbox(std::shared_ptr<GlooMesh> mesh)
    : mesh_(std::move(mesh)), next_buffer_(mesh_, &next_, sizeof next_) {
    listener_ = start_background_thread([this] { listen(); });
}

DPTK_INLINE GlooInbox::~GlooInbox() {
    next_buffer_.stop_receiving();
    listener_.join();
}

DPTK_INLINE std::shared_ptr<GlooInbox::Wanted> GlooInbox::want(int from, int tag) {
    const auto wanted = std::make_shared<Wanted>(Wanted{from, tag});
    const std::lock_guard lock(mutex_);
    const auto arrived =
        detail::find_if(unexpected_, [&](const Arrived& each) { return matches(from, tag, each); });
    if (arrived == unexpected_.end()) {
        wanted_.push_back(wanted);
    } else {
        wanted->found = *arrived;
        unexpected_.erase(arrived);
    }
    return wanted;
}

DPTK_INLINE GlooInbox::Arrived GlooInbox::await(const Wanted& wanted) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return wanted.found || has_ended_; });
    if (wanted.found) return *wanted.found;
    lock.unlock();
    mesh_->check();
    throw gloo::IoException("the connections are closed");
}

DPTK_INLINE void GlooInbox::forget(const std::shared_ptr<Wanted>& wanted) noexcept {
    const std::lock_guard lock(mutex_);
    wanted_.remove(wanted);
}

DPTK_INLINE std::optional<GlooInbox::Arrived> GlooInbox::find(int from, int tag) {
    mesh_->check();
    const std::lock_guard lock(mutex_);
    for (const Arrived& arrived : unexpected_) {
        const int its_tag = static_cast<int>(arrived.header.tag);
        if (its_tag <= max_tag && matches(from, tag == any_tag ? its_tag : tag, arrived)) return arrived;
    }
    return std::nullopt;
}

DPTK_INLINE bool GlooInbox::matches(int from, int tag, const Arrived& arrived) noexcept {
    return static_cast<int>(arrived.header.tag) == tag && (from == any_rank || from == arrived.from);
}

DPTK_INLINE void GlooInbox::listen() noexcept {
    std::vector<int> others;
    for (int rank = 0; rank < mesh_->size(); ++rank)
        if (rank != mesh_->rank()) others.push_back(rank);
    try {
        while (true) {
            next_buffer_.receive(others, header_slot);
            const Arrived arrived{next_buffer_.await_received(), next_};
            const std::lock_guard lock(mutex_);
            const auto first = detail::find_if(wanted_, [&](const std::shared_ptr<Wanted>& wanted) {
                return matches(wanted->from, wanted->tag, arrived);
            });
            if (first == wanted_.end()) {
                unexpected_.push_back(arrived);
            } else {
                (*first)->found = arrived;
                wanted_.erase(first);
            }
            changed_.notify_all();
        }
    } catch (const std::exception&) {  // the next call of the program throws
    }
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    changed_.notify_all();
}

DPTK_INLINE GlooMessage::GlooMessage(std::shared_ptr<GlooInbox> inbox, const Message& message)
    : inbox_(std::move(inbox)),
      message_(message),
      header_{message.buffer.bytes(), inbox_->next_message(), static_cast<std::uint64_t>(message.tag)},
      header_buffer_(inbox_->mesh(), &header_, sizeof header_),
      data_buffer_(inbox_->mesh(), message.buffer.data, message.buffer.bytes()) {
    if (message.verb == Verb::recv) {
        wanted_ = inbox_->want(message.peer, message.tag);
        return;
    }
    header_buffer_.send(message.peer, header_slot);
    if (header_.bytes != 0) data_buffer_.send(message.peer, data_slots | header_.number);
}

DPTK_INLINE GlooMessage::~GlooMessage() {
    if (wanted_) inbox_->forget(wanted_);
}

DPTK_INLINE int GlooMessage::complete() {
    if (!wanted_) {
        header_buffer_.await_sent();
        if (header_.bytes != 0) data_buffer_.await_sent();
        return message_.peer;
    }
    const auto& [from, header] = inbox_->await(*wanted_);
    if (header.bytes != header_.bytes)
        throw wrong_size(from, text(header.bytes, " bytes"), inbox_->mesh()->rank(), header_.bytes);
    if (header.bytes != 0) {
        data_buffer_.receive({from}, data_slots | header.number);
        data_buffer_.await_received();
    }
    return from;
}

}  // namespace DPTK_NAMESPACE::detail
