/// Calls of a channel whose transport enqueues them on a GPU stream, as NCCL does, instead of blocking the
/// host.
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <utility>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/call_executor.hpp"
#include "dptk/comm/detail/message_batch.hpp"
#include "dptk/comm/detail/stream_calls.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

template <class T>
class EnqueuedCalls {
  public:
    explicit EnqueuedCalls(std::shared_ptr<CallExecutor<T>> executor)
        : executor_(std::move(executor)), calls_(StreamCalls::make(executor_->tracker)) {}

    /// Executes the call. Blocks if it uses host memory. A barrier also blocks until all started calls have
    /// ended.
    void run(const Collective& call, AllReduceAlgorithm algorithm) {
        launch_messages();
        if (call.verb == Verb::barrier) executor_->abort_job_on_error([&] { finish_started(); });
        Work work(add(call, algorithm, nullptr, [&] { return executor_->transport->enqueue(call); }));
        if (call.shared_shape().on_device()) return work.detach();
        work.wait();
    }

    /// Starts the call, which runs concurrently with the subsequent work of its stream.
    [[nodiscard]] Work start(const Collective& call, AllReduceAlgorithm algorithm,
                             std::shared_ptr<const void> keep_alive) {
        launch_messages();
        return Work(add(call, algorithm, std::move(keep_alive),
                        [&] { return executor_->transport->enqueue_beside(call); }),
                    executor_->job);
    }

    /// Prepares for messages. Must be called before the first message.
    void open_messages(std::shared_ptr<CallTracker> tracker) {
        messages_ = StreamCalls::make(std::move(tracker));
    }

    /// Launches the message together with the messages that were started before. The message's stream waits
    /// for the message; the host blocks only if the buffer is in host memory.
    void run(const Message& message) {
        Work work = start(message, nullptr);
        if (message.buffer.on_device()) {
            work.wait(message.stream);
        } else {
            work.wait();
        }
    }

    /// Adds the message to the current batch, which is launched when the caller waits for one of
    /// its messages or makes another call.
    [[nodiscard]] Work start(const Message& message, std::shared_ptr<const void> keep_alive) {
        executor_->abort_job_on_error([&] { executor_->transport->follow(message); });
        if (!batch_ || !batch_->add(message, keep_alive)) {
            batch_ = std::make_shared<MessageBatch>(
                [executor = executor_, calls = messages_](std::span<const Message> messages,
                                                          MessageBatch::Owners owners) {
                    return launch(*executor, *calls, messages, std::move(owners));
                });
            static_cast<void>(batch_->add(message, std::move(keep_alive)));
        }
        return Work(std::make_shared<BatchedMessage>(batch_, message), executor_->job);
    }

    /// Launches the current batch of messages, if any.
    void launch_messages() {
        if (!batch_) return;
        const std::shared_ptr<MessageBatch> batch = std::exchange(batch_, nullptr);
        batch->launch();
        if (const std::exception_ptr error = batch->unreported_error()) std::rethrow_exception(error);
    }

    /// Blocks until all calls and messages have ended.
    void finish() {
        if (batch_) batch_->launch();
        finish_started();
    }

  private:
    void finish_started() {
        calls_->finish();
        if (messages_) messages_->finish();
    }

    template <class Enqueue>
    std::shared_ptr<WorkState> add(const Collective& call, AllReduceAlgorithm algorithm,
                                   std::shared_ptr<const void> keep_alive, Enqueue&& enqueue) {
        std::shared_ptr<WorkState> work;
        executor_->abort_job_on_error([&] {
            if (executor_->checker) {
                executor_->checker->announce();
                const CallerState::WaitScope here(executor_->checker->caller(),
                                                  executor_->checker->channel());
                executor_->checker->check(call, algorithm);
            }
            work = calls_->add(PackedCall(call), std::move(keep_alive), enqueue);
        });
        return work;
    }

    [[nodiscard]] static std::shared_ptr<WorkState> launch(CallExecutor<T>& executor, StreamCalls& calls,
                                                           std::span<const Message> messages,
                                                           MessageBatch::Owners owners) {
        executor.throw_if_failed();
        std::shared_ptr<WorkState> work;
        executor.abort_job_on_error([&] {
            work =
                calls.add(pack_together(messages), std::make_shared<MessageBatch::Owners>(std::move(owners)),
                          [&] { return executor.transport->enqueue_together(messages); });
        });
        return work;
    }

    /// Returns the call that represents the batch to the watchdog and to other ranks: the last message,
    /// with any_rank as its peer if the messages have several peers.
    [[nodiscard]] static PackedCall pack_together(std::span<const Message> messages) {
        Message shown = messages.back();
        const bool has_one_peer =
            detail::all_of(messages, [&](const Message& message) { return message.peer == shown.peer; });
        if (!has_one_peer) shown.peer = any_rank;
        return pack(shown);
    }

    std::shared_ptr<CallExecutor<T>> executor_;
    std::shared_ptr<StreamCalls> calls_;
    std::shared_ptr<StreamCalls> messages_;
    std::shared_ptr<MessageBatch> batch_;
};

}  // namespace DPTK_NAMESPACE::detail
