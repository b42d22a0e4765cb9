#pragma once

#include "dptk/comm/engine/message_batch.hpp"

#include <utility>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE MessageBatch::MessageBatch(Launch launch) : launch_(std::move(launch)) {}

DPTK_INLINE bool MessageBatch::add(const Message& message, std::shared_ptr<const void> keep_alive) {
    const std::lock_guard lock(mutex_);
    if (!launch_) return false;
    messages_.push_back(message);
    owners_.push_back(std::move(keep_alive));
    return true;
}

DPTK_INLINE void MessageBatch::launch() {
    const std::lock_guard lock(mutex_);
    const Launch launch = std::exchange(launch_, nullptr);
    if (!launch) return;
    try {
        work_ = launch(messages_, std::move(owners_));
    } catch (...) {
        error_.set(std::current_exception());
    }
}

DPTK_INLINE std::shared_ptr<WorkState> MessageBatch::work() {
    const std::lock_guard lock(mutex_);
    return work_;
}

DPTK_INLINE std::exception_ptr MessageBatch::error() {
    const std::lock_guard lock(mutex_);
    return work_ ? work_->error() : error_.see();
}

DPTK_INLINE std::exception_ptr MessageBatch::unreported_error() {
    const std::lock_guard lock(mutex_);
    return work_ ? work_->unreported_error() : error_.unseen();
}

DPTK_INLINE BatchedMessage::BatchedMessage(std::shared_ptr<MessageBatch> batch, const Message& message)
    : batch_(std::move(batch)), source_rank_(message.verb == Verb::recv ? message.peer : -1) {}

DPTK_INLINE bool BatchedMessage::wait(std::chrono::nanoseconds timeout) {
    batch_->launch();
    const std::shared_ptr<WorkState> work = batch_->work();
    return !work || work->wait(timeout);
}

DPTK_INLINE void BatchedMessage::order_before(StreamRef stream) {
    batch_->launch();
    if (const std::shared_ptr<WorkState> work = batch_->work()) work->order_before(stream);
}

}  // namespace DPTK_NAMESPACE::detail
