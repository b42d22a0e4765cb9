#pragma once

#include "dptk/comm/gloo/messages.hpp"

#include <utility>

#include "dptk/control/process/deadline.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE GlooMessage::GlooMessage(gloo::Context& context, std::shared_ptr<GlooInbox> inbox,
                                     const Message& message, std::uint64_t number)
    : context_(context),
      inbox_(std::move(inbox)),
      message_(message),
      header_{message.buffer.bytes(), number, static_cast<std::uint64_t>(message.tag)},
      data_buffer_(context.createUnboundBuffer(message.buffer.data, message.buffer.bytes())) {
    if (message.verb == Verb::recv && !is_of_collective()) {
        wanted_ = inbox_->want(message.peer, message.tag);
        return;
    }
    header_buffer_ = context.createUnboundBuffer(&header_, sizeof header_);
    if (message.verb == Verb::recv) {
        header_buffer_->recv(message.peer, header_slot());
    } else {
        header_buffer_->send(message.peer, header_slot());
        if (has_data()) data_buffer_->send(message.peer, data_slot(header_));
    }
}

DPTK_INLINE GlooMessage::~GlooMessage() {
    if (wanted_) inbox_->forget(wanted_);
}

DPTK_INLINE int GlooMessage::complete() {
    if (message_.verb == Verb::send) {
        header_buffer_->waitSend(longest_wait);
        if (has_data()) data_buffer_->waitSend(longest_wait);
        return message_.peer;
    }
    GlooInbox::Arrived arrived{message_.peer, {}};
    if (wanted_) {
        arrived = inbox_->await(*wanted_);
    } else {
        header_buffer_->waitRecv(longest_wait);
        arrived.header = header_;
    }
    const auto& [from, header] = arrived;
    if (header.bytes != message_.buffer.bytes()) {
        throw wrong_size(from, text(header.bytes, " bytes"), context_.rank, message_.buffer.bytes());
    }
    if (has_data()) {
        data_buffer_->recv(from, data_slot(header));
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

}  // namespace DPTK_NAMESPACE::detail
