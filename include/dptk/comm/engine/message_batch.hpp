/// Batching of point-to-point messages: started messages are collected and launched together, as in
/// ncclGroupStart/ncclGroupEnd. NCCL messages that are launched separately run one after the other, which
/// may deadlock.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/work_error.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class MessageBatch {
  public:
    using Owners = std::vector<std::shared_ptr<const void>>;

    /// Enqueues the messages and returns their common work. The owners keep the messages' memory alive.
    using Launch = std::function<std::shared_ptr<WorkState>(std::span<const Message>, Owners owners)>;

    explicit MessageBatch(Launch launch);

    /// Adds a message. Returns false, and does not add it, if the batch has been launched already.
    [[nodiscard]] bool add(const Message& message, std::shared_ptr<const void> keep_alive);

    /// Launches the batch, on any thread; subsequent calls do nothing. Blocks until the messages are enqueued
    /// on the GPU. An error of the launch becomes the error of all messages of the batch.
    void launch();

    /// Returns the common work of all messages; null before the launch, and if the launch has failed.
    [[nodiscard]] std::shared_ptr<WorkState> work();

    [[nodiscard]] std::exception_ptr error();

    [[nodiscard]] std::exception_ptr unreported_error();

  private:
    std::mutex mutex_;
    Launch launch_;  // null after launch()
    std::vector<Message> messages_;
    Owners owners_;
    std::shared_ptr<WorkState> work_;
    WorkError error_;
};

/// A message of a batch. A wait for one message, or a poll, launches the whole batch, and waits for or polls
/// all messages of the batch.
class BatchedMessage final : public WorkState {
  public:
    BatchedMessage(std::shared_ptr<MessageBatch> batch, const Message& message);

    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    DPTK_INLINE void order_before(StreamRef stream) override;

    std::exception_ptr error() override { return batch_->error(); }
    std::exception_ptr unreported_error() override { return batch_->unreported_error(); }
    [[nodiscard]] int source_rank() const override { return source_rank_; }

  private:
    std::shared_ptr<MessageBatch> batch_;
    int source_rank_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/engine/message_batch.ipp"
#endif
