/// Messages that have been started and wait to be launched together, as NCCL needs it: of two messages that
/// are launched one after the other, the second one waits for the end of the first.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/comm/work_error.hpp"

namespace dptk::detail {

class MessageBatch {
  public:
    using Owners = std::vector<std::shared_ptr<const void>>;

    /// Hands messages over, whose memory `owners` keep, and returns the work of all of them.
    using Launch = std::function<std::shared_ptr<WorkState>(std::span<const Message>, Owners owners)>;

    explicit MessageBatch(Launch launch) : launch_(std::move(launch)) {}

    /// Returns whether the message goes with the batch: it does not where that has been launched.
    [[nodiscard]] bool add(const Message& message, std::shared_ptr<const void> keep_alive) {
        const std::lock_guard lock(mutex_);
        if (!launch_) return false;
        messages_.push_back(message);
        owners_.push_back(std::move(keep_alive));
        return true;
    }

    /// Once; on whatever thread. Blocks until the GPU has the messages. What goes wrong is the error of all
    /// of them.
    void launch() {
        const std::lock_guard lock(mutex_);
        const Launch launch = std::exchange(launch_, nullptr);
        if (!launch) return;
        try {
            work_ = launch(messages_, std::move(owners_));
        } catch (...) {
            error_.set(std::current_exception());
        }
    }

    /// Of all messages, where they have been launched.
    [[nodiscard]] std::shared_ptr<WorkState> work() {
        const std::lock_guard lock(mutex_);
        return work_;
    }

    [[nodiscard]] std::exception_ptr error() {
        const std::lock_guard lock(mutex_);
        return work_ ? work_->error() : error_.see();
    }

    [[nodiscard]] std::exception_ptr unseen_error() {
        const std::lock_guard lock(mutex_);
        return work_ ? work_->unseen_error() : error_.unseen();
    }

  private:
    std::mutex mutex_;
    Launch launch_;  // until then
    std::vector<Message> messages_;
    Owners owners_;
    std::shared_ptr<WorkState> work_;
    WorkError error_;
};

/// One of them. Whoever waits for it, or asks whether it is done, launches all, and waits for all.
class BatchedMessage final : public WorkState {
  public:
    BatchedMessage(std::shared_ptr<MessageBatch> batch, const Message& message)
        : batch_(std::move(batch)), source_rank_(message.verb == Verb::recv ? message.peer : -1) {}

    bool wait(std::chrono::nanoseconds timeout) override {
        batch_->launch();
        const std::shared_ptr<WorkState> work = batch_->work();
        return !work || work->wait(timeout);
    }

    void order_before(StreamRef stream) override {
        batch_->launch();
        if (const std::shared_ptr<WorkState> work = batch_->work()) work->order_before(stream);
    }

    std::exception_ptr error() override { return batch_->error(); }
    std::exception_ptr unseen_error() override { return batch_->unseen_error(); }
    [[nodiscard]] int source_rank() const override { return source_rank_; }

  private:
    std::shared_ptr<MessageBatch> batch_;
    int source_rank_;
};

}  // namespace dptk::detail
