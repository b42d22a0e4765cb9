/// Messages that have been started and wait to be launched together, as NCCL needs it: of two messages that
/// are launched one after the other, the second one waits for the end of the first.
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

    /// Hands messages over, whose memory `owners` keep, and returns the work of all of them.
    using Launch = std::function<std::shared_ptr<WorkState>(std::span<const Message>, Owners owners)>;

    explicit MessageBatch(Launch launch);

    /// Returns whether the message goes with the batch: it does not where that has been launched.
    [[nodiscard]] bool add(const Message& message, std::shared_ptr<const void> keep_alive);

    /// Once; on whatever thread. Blocks until the GPU has the messages. What goes wrong is the error of all
    /// of them.
    void launch();

    /// Of all messages, where they have been launched.
    [[nodiscard]] std::shared_ptr<WorkState> work();

    [[nodiscard]] std::exception_ptr error();

    [[nodiscard]] std::exception_ptr unseen_error();

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
    BatchedMessage(std::shared_ptr<MessageBatch> batch, const Message& message);

    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    DPTK_INLINE void order_before(StreamRef stream) override;

    std::exception_ptr error() override { return batch_->error(); }
    std::exception_ptr unseen_error() override { return batch_->unseen_error(); }
    [[nodiscard]] int source_rank() const override { return source_rank_; }

  private:
    std::shared_ptr<MessageBatch> batch_;
    int source_rank_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/message_batch.ipp"
#endif
