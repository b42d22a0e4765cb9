/// Work is the handle of a started (asynchronous) operation, like MPI_Request or PyTorch's Work.
#pragma once

#include <chrono>
#include <exception>
#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE {

/// The state of a started operation. Work is the user's handle of it.
class WorkState {
  public:
    virtual ~WorkState() = default;

    /// Blocks until the operation has ended, for at most `timeout`. Returns whether the operation has ended.
    virtual bool wait(std::chrono::nanoseconds timeout) = 0;

    /// Makes subsequent work of `stream` wait for the operation. If the operation does not run on a GPU,
    /// blocks until it has ended.
    DPTK_INLINE virtual void order_before(StreamRef stream);

    /// Returns whether the operation has ended. Does not block. Unlike wait(), does not check the deadline of
    /// an operation that has not ended.
    [[nodiscard]] DPTK_INLINE virtual bool ended();

    /// Returns the operation's error; null if the operation has not ended or has succeeded. Does not block.
    virtual std::exception_ptr error() = 0;

    /// Returns the operation's error if error() has not reported it yet, and null otherwise.
    virtual std::exception_ptr unreported_error() = 0;

    /// Returns the sender of a recv that has ended; -1 for all other operations.
    [[nodiscard]] virtual int source_rank() const { return -1; }
};

/// The handle of a started operation. Copies refer to the same operation. A Work may be dropped without a
/// wait: the communicator then completes the operation, at the latest in barrier() or in the communicator's
/// destructor. The buffers must live until the operation has ended.
class Work {
  public:
    /// Creates the handle of an operation that has succeeded.
    Work() = default;

    /// Creates the handle of an operation whose state is shared with its communicator.
    explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

    /// Blocks until the operation has ended. Throws its error if it has failed.
    void wait();

    /// Blocks for at most `timeout`, and returns whether the operation has ended. Throws its error if it has
    /// failed. A timeout does not affect the operation, and wait() may be called again.
    [[nodiscard]] bool wait(std::chrono::nanoseconds timeout);

    /// Makes subsequent work of `stream` wait for the operation. Does not block over NCCL. Over other
    /// transports, blocks until the operation has ended. Throws the operation's error if it is already known.
    void wait(StreamRef stream);

    /// Returns whether the operation has ended, successfully or not. Does not block.
    [[nodiscard]] bool done();

    /// Returns the operation's error; null if the operation has not ended or has succeeded. Does not block.
    [[nodiscard]] std::exception_ptr error() { return state_ ? state_->error() : nullptr; }

    /// Waits for the operation. Returns the sender of the received message if the operation is a recv_async;
    /// -1 for all other operations.
    int source_rank();

    /// Returns the state of the operation, for joining several Works into one; null for a default-constructed
    /// Work.
    [[nodiscard]] const std::shared_ptr<WorkState>& state() const noexcept { return state_; }

  private:
    std::shared_ptr<WorkState> state_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/work.ipp"
#endif
