#pragma once

#include "dptk/comm/gloo/messages.hpp"

#include <utility>

#include "dptk/control/process/deadline.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE GlooMessage::GlooMessage(gloo::Context& context, const Message& message, std::uint64_t number)
    : context_(context),
      message_(message),
      head_{message.buffer.bytes(), number},
      head_buffer_(context.createUnboundBuffer(head_.data(), sizeof head_)),
      data_buffer_(context.createUnboundBuffer(message.buffer.data, message.buffer.bytes())) {
    if (message.verb == Verb::send) {
        head_buffer_->send(message.peer, head_slot());
        if (has_data()) data_buffer_->send(message.peer, data_slot());
    } else if (message.peer == any_rank) {
        head_buffer_->recv(others(), head_slot());
    } else {
        head_buffer_->recv(message.peer, head_slot());
    }
}

DPTK_INLINE int GlooMessage::complete() {
    if (message_.verb == Verb::send) {
        head_buffer_->waitSend(longest_wait);
        if (has_data()) data_buffer_->waitSend(longest_wait);
        return message_.peer;
    }
    int from = message_.peer;
    head_buffer_->waitRecv(&from, longest_wait);
    if (head_[0] != message_.buffer.bytes()) {
        throw MismatchError(text("rank ", from, " sends ", head_[0], " bytes to rank ", context_.rank,
                                 ", which expects ", message_.buffer.bytes(), " bytes"));
    }
    if (has_data()) {
        data_buffer_->recv(from, data_slot());
        data_buffer_->waitRecv(longest_wait);
    }
    return from;
}

DPTK_INLINE std::shared_ptr<WorkState> GlooMessageQueues::start(const Message& message,
                                                                QueuedWork::Operation complete) {
    if (queues_.size() > kept_queues) {
        std::erase_if(queues_, [](const auto& entry) { return entry.second.idle(); });
    }
    return queues_[{message.verb, message.peer, message.tag}].start(std::move(complete));
}

DPTK_INLINE std::uint64_t GlooMessage::head_slot() const noexcept {
    return std::uint64_t{0x40} << 56 | static_cast<std::uint32_t>(message_.tag);
}

DPTK_INLINE std::vector<int> GlooMessage::others() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < context_.size; ++rank) {
        if (rank != context_.rank) ranks.push_back(rank);
    }
    return ranks;
}

}  // namespace DPTK_NAMESPACE::detail
