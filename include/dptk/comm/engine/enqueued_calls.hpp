/// EnqueuedCalls: an engine's calls if its transport enqueues them on a GPU stream, as NCCL does, instead of
/// blocking the host.
#pragma once

#include <memory>
#include <span>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/engine/engine_owner.hpp"
#include "dptk/comm/engine/message_batch.hpp"
#include "dptk/comm/engine/stream_calls.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class EnqueuedCalls {
  public:
    /// `engine` owns this object.
    explicit EnqueuedCalls(Engine& engine);

    /// Executes the call. Blocks if it uses host memory. A barrier also blocks until all started calls have
    /// ended.
    void run(const Collective& call);

    /// Starts the call, which runs concurrently with the subsequent work of its stream.
    [[nodiscard]] Work start(const Collective& call, std::shared_ptr<const void> keep_alive);

    /// Prepares for messages. Must be called before the first message.
    void open_messages(std::shared_ptr<CallTracker> tracker);

    /// Launches the message together with the messages that were started before. The message's stream waits
    /// for the message; the host blocks only if the buffer is in host memory.
    void run(const Message& message);

    /// Adds the message to the current batch, which is launched when the caller waits for one of its messages
    /// or makes another call.
    [[nodiscard]] Work start(const Message& message, std::shared_ptr<const void> keep_alive);

    /// Launches the current batch of messages, if any.
    void launch_messages();

    /// Blocks until all calls and messages have ended.
    void finish();

  private:
    void finish_started();

    template <class Enqueue>
    std::shared_ptr<WorkState> add(const Collective& call, std::shared_ptr<const void> keep_alive,
                                   Enqueue&& enqueue);

    Engine& engine_;
    std::shared_ptr<StreamCalls> calls_;
    std::shared_ptr<StreamCalls> messages_;
    std::shared_ptr<MessageBatch> batch_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/engine/enqueued_calls.ipp"
#endif
