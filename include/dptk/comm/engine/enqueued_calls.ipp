#pragma once

#include "dptk/comm/engine/enqueued_calls.hpp"

#include <exception>
#include <utility>

#include "dptk/comm/engine/call_checker.hpp"
#include "dptk/comm/engine/engine.hpp"
#include "dptk/comm/stream_transport.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the call that represents the batch to the watchdog and to other ranks: the last message, with
/// any_rank as its peer if the messages have several peers.
[[nodiscard]] DPTK_INLINE PackedCall pack_together(std::span<const Message> messages) {
    Message shown = messages.back();
    const bool has_one_peer =
        detail::all_of(messages, [&](const Message& message) { return message.peer == shown.peer; });
    if (!has_one_peer) shown.peer = any_rank;
    return pack(shown);
}

DPTK_INLINE EnqueuedCalls::EnqueuedCalls(Engine& engine)
    : engine_(engine), calls_(StreamCalls::make(engine.tracker_)) {}

DPTK_INLINE void EnqueuedCalls::run(const Collective& call) {
    launch_messages();
    if (call.verb == Verb::barrier) engine_.control_->fail_job_on_error([&] { finish_started(); });
    Work work(add(call, nullptr, [&] { return engine_.stream_->enqueue(call); }));
    if (call.shared_shape().on_device()) return work.detach();
    work.wait();
}

DPTK_INLINE Work EnqueuedCalls::start(const Collective& call, std::shared_ptr<const void> keep_alive) {
    launch_messages();
    return Work(add(call, std::move(keep_alive), [&] { return engine_.stream_->enqueue_beside(call); }),
                engine_.control_);
}

DPTK_INLINE void EnqueuedCalls::open_messages(std::shared_ptr<CallTracker> tracker) {
    messages_ = StreamCalls::make(std::move(tracker));
}

DPTK_INLINE void EnqueuedCalls::run(const Message& message) {
    Work work = start(message, nullptr);
    if (message.buffer.on_device()) {
        work.wait(message.stream);
    } else {
        work.wait();
    }
}

DPTK_INLINE Work EnqueuedCalls::start(const Message& message, std::shared_ptr<const void> keep_alive) {
    engine_.control_->fail_job_on_error([&] { engine_.stream_->follow(message); });
    if (!batch_ || !batch_->add(message, keep_alive)) {
        // A program may wait for a message after its engine has closed.
        batch_ = std::make_shared<MessageBatch>(
            [engine = engine_.self_, calls = messages_](std::span<const Message> messages,
                                                        MessageBatch::Owners owners) {
                engine->throw_if_failed();
                std::shared_ptr<WorkState> work;
                engine->control_->fail_job_on_error([&] {
                    work = calls->add(pack_together(messages),
                                      std::make_shared<MessageBatch::Owners>(std::move(owners)),
                                      [&] { return engine->stream_->enqueue_together(messages); });
                });
                return work;
            });
        static_cast<void>(batch_->add(message, std::move(keep_alive)));
    }
    return Work(std::make_shared<BatchedMessage>(batch_, message), engine_.control_);
}

DPTK_INLINE void EnqueuedCalls::launch_messages() {
    if (!batch_) return;
    const std::shared_ptr<MessageBatch> batch = std::exchange(batch_, nullptr);
    batch->launch();
    if (const std::exception_ptr error = batch->unreported_error()) std::rethrow_exception(error);
}

DPTK_INLINE void EnqueuedCalls::finish() {
    if (batch_) batch_->launch();
    finish_started();
}

DPTK_INLINE void EnqueuedCalls::finish_started() {
    calls_->finish();
    if (messages_) messages_->finish();
}

template <class Enqueue>
std::shared_ptr<WorkState> EnqueuedCalls::add(const Collective& call, std::shared_ptr<const void> keep_alive,
                                              Enqueue&& enqueue) {
    std::shared_ptr<WorkState> work;
    engine_.control_->fail_job_on_error([&] {
        if (engine_.checker_) {
            engine_.checker_->announce();
            const CallerState::WaitScope here(engine_.checker_->caller(), engine_.checker_->channel());
            engine_.checker_->check(call);
        }
        work = calls_->add(PackedCall(call), std::move(keep_alive), enqueue);
    });
    return work;
}

}  // namespace DPTK_NAMESPACE::detail
