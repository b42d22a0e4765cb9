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

namespace detail {

class CallTracker;
class ControlPlane;
class WorkHandle;

}  // namespace detail

/// The handle of a started operation. Copies refer to the same operation. The destructor of the last copy
/// blocks until the operation has ended, so that the operation does not use memory that no longer exists. If
/// an exception destroys the handle before the operation has ended, the job is failed first, so that the wait
/// ends: over MPI, which cannot be interrupted, this ends the process. Agreed errors do not fail the job,
/// since all ranks wait then. detach() turns this off.
///
/// Over MPI below MPI_THREAD_MULTIPLE, some collectives are deferred: those other than all_reduce, broadcast,
/// even all_gather and barrier; reductions that dptk computes itself (such as sums of 16-bit floats and
/// user-defined functions); all_reduce with a chosen algorithm; all collectives with DPTK_DEBUG=detail; and
/// collectives that are started after a deferred one. A deferred collective runs in wait() without a timeout,
/// or before the next blocking call of the group. done() and wait(timeout) do not run it.
class Work {
  public:
    /// Creates the handle of an operation that has succeeded.
    Work() = default;

    /// Creates the handle of an operation whose state is shared with its communicator.
    explicit Work(std::shared_ptr<WorkState> state);

    /// Creates the handle of an operation of a job, of the engine with the given tracker, if it has one.
    Work(std::shared_ptr<WorkState> state, std::shared_ptr<detail::ControlPlane> control,
         std::shared_ptr<detail::CallTracker> tracker = nullptr);

    /// Blocks until the operation has ended. Throws its error if it has failed.
    void wait();

    /// Blocks for at most `timeout`, and returns whether the operation has ended. Throws its error if it has
    /// failed. A timeout does not affect the operation, and wait() may be called again.
    [[nodiscard]] bool wait(std::chrono::nanoseconds timeout);

    /// Makes subsequent work of `stream` wait for the operation. Does not block over NCCL. Over other
    /// transports, blocks until the operation has ended. Throws the operation's error if it is already known.
    /// The destructors of this handle and its copies do not block afterwards.
    void wait(StreamRef stream);

    /// Makes the destructors of this handle and its copies return at once. The communicator completes the
    /// operation, at the latest in barrier() or in the communicator's destructor. The caller must keep the
    /// buffers alive until then.
    void detach() noexcept;

    /// Returns whether the operation has ended, successfully or not. Does not block.
    [[nodiscard]] bool done();

    /// Returns the operation's error; null if the operation has not ended or has succeeded. Does not block.
    [[nodiscard]] std::exception_ptr error();

    /// Waits for the operation. Returns the sender of the received message if the operation is a recv_async;
    /// -1 for all other operations.
    int source_rank();

    /// Returns the state of the operation, for joining several Works into one; null for a default-constructed
    /// Work.
    [[nodiscard]] std::shared_ptr<WorkState> state() const noexcept;

  private:
    std::shared_ptr<detail::WorkHandle> handle_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/work.ipp"
#endif
