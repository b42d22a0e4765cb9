/// StreamTransport: the base class of a transport whose calls execute on CUDA streams, as those of NCCL do.
/// The host does not wait for them.
#pragma once

#include <memory>
#include <span>

#include "dptk/comm/transport.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A transport that enqueues calls on the GPU. A call on host memory has completed when the function returns.
class StreamTransport : public Transport {
  public:
    /// Enqueues a call on its stream.
    [[nodiscard]] virtual std::shared_ptr<WorkState> enqueue(const Collective& call) = 0;

    /// Enqueues a call on the transport's own stream, after the operations that are already enqueued on the
    /// call's stream.
    [[nodiscard]] virtual std::shared_ptr<WorkState> enqueue_beside(const Collective& call) = 0;

    /// Makes the transport's own stream wait for the operations that are already enqueued on the message's
    /// stream.
    virtual void follow(const Message& message) = 0;

    /// Enqueues messages on the transport's own stream, where they run concurrently.
    [[nodiscard]] virtual std::shared_ptr<WorkState> enqueue_together(std::span<const Message> messages) = 0;

    /// Throws the error of an operation of this rank that has failed, if there is one.
    virtual void rethrow_failure() = 0;

    /// Closes the group. Collective; blocks.
    virtual void close() = 0;

    /// Enqueues a call, and blocks until it has ended.
    DPTK_INLINE void run(const Collective& call) override;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/stream_transport.ipp"
#endif
