/// The calls of a channel whose transport hands them to a GPU, and goes on.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <span>
#include <utility>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/carrier.hpp"
#include "dptk/comm/detail/message_batch.hpp"
#include "dptk/comm/detail/stream_calls.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

template <class T>
class EnqueuedCalls {
  public:
    explicit EnqueuedCalls(std::shared_ptr<Carrier<T>> carrier)
        : carrier_(std::move(carrier)), calls_(StreamCalls::make(carrier_->activity)) {}

    /// Blocks where the call is on host memory, and at a barrier, which comes behind all that was started.
    void run(const Collective& call, AllReduceAlgorithm algorithm) {
        launch_messages();
        if (call.verb == Verb::barrier) carrier_->abort_job_on_error([&] { finish_started(); });
        Work work(add(call, algorithm, nullptr, [&] { return carrier_->transport->enqueue(call); }));
        if (!call.shared_shape().on_device()) work.wait();
    }

    /// The same beside what the call's stream does from now on.
    [[nodiscard]] Work start(const Collective& call, AllReduceAlgorithm algorithm,
                             std::shared_ptr<const void> keep_alive) {
        launch_messages();
        return Work(add(call, algorithm, std::move(keep_alive),
                        [&] { return carrier_->transport->enqueue_beside(call); }));
    }

    /// Before the first message.
    void open_messages(std::shared_ptr<CallTracker> activity) {
        messages_ = StreamCalls::make(std::move(activity));
    }

    /// Launches the message, together with those that were started. Its stream goes on behind it; the host
    /// waits where the message is in its memory.
    void run(const Message& message) {
        Work work = start(message, nullptr);
        if (message.buffer.on_device()) {
            work.wait(message.stream);
        } else {
            work.wait();
        }
    }

    /// Puts the message to those that will be launched when somebody waits for one of them, or makes another
    /// call.
    [[nodiscard]] Work start(const Message& message, std::shared_ptr<const void> keep_alive) {
        carrier_->abort_job_on_error([&] { carrier_->transport->follow(message); });
        if (!batch_ || !batch_->add(message, keep_alive)) {
            batch_ = std::make_shared<MessageBatch>(
                [carrier = carrier_, calls = messages_](std::span<const Message> messages,
                                                        MessageBatch::Owners owners) {
                    return launch(*carrier, *calls, messages, std::move(owners));
                });
            static_cast<void>(batch_->add(message, std::move(keep_alive)));
        }
        return Work(std::make_shared<BatchedMessage>(batch_, message));
    }

    void launch_messages() {
        if (!batch_) return;
        const std::shared_ptr<MessageBatch> batch = std::exchange(batch_, nullptr);
        batch->launch();
        if (const std::exception_ptr error = batch->unseen_error()) std::rethrow_exception(error);
    }

    /// Blocks until all have ended.
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
        carrier_->abort_job_on_error([&] {
            if (carrier_->checker) {
                carrier_->checker->promise();
                const WaitingCaller::Here here(carrier_->checker->caller(), carrier_->checker->channel());
                carrier_->checker->check(call, algorithm);
            }
            work = calls_->add(PackedCall(call), std::move(keep_alive), enqueue);
        });
        return work;
    }

    [[nodiscard]] static std::shared_ptr<WorkState> launch(Carrier<T>& carrier, StreamCalls& calls,
                                                           std::span<const Message> messages,
                                                           MessageBatch::Owners owners) {
        carrier.check_well();
        std::shared_ptr<WorkState> work;
        carrier.abort_job_on_error([&] {
            work =
                calls.add(pack_together(messages), std::make_shared<MessageBatch::Owners>(std::move(owners)),
                          [&] { return carrier.transport->enqueue_together(messages); });
        });
        return work;
    }

    /// As what deadlines and the other ranks see: the last message, from any rank where there are several.
    [[nodiscard]] static PackedCall pack_together(std::span<const Message> messages) {
        Message shown = messages.back();
        const bool of_one =
            std::ranges::all_of(messages, [&](const Message& message) { return message.peer == shown.peer; });
        if (!of_one) shown.peer = any_rank;
        return pack(shown);
    }

    std::shared_ptr<Carrier<T>> carrier_;
    std::shared_ptr<StreamCalls> calls_;
    std::shared_ptr<StreamCalls> messages_;
    std::shared_ptr<MessageBatch> batch_;
};

}  // namespace DPTK_NAMESPACE::detail
