/// Work is the handle of a collective that has been started and goes on while the caller does something else.
#pragma once

#include <chrono>
#include <exception>
#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE {

/// What a communicator keeps of a started operation; Work is the user's view of it.
class WorkState {
  public:
    virtual ~WorkState() = default;

    /// Blocks until the operation has ended, at most for `timeout`. Returns whether it has.
    virtual bool wait(std::chrono::nanoseconds timeout) = 0;

    /// What `stream` does from now on comes behind the operation. Blocks where that is no GPU's, until it has
    /// ended.
    DPTK_INLINE virtual void order_before(StreamRef stream);

    /// Whether it has ended, where nobody waits: no deadline holds. Does not block.
    [[nodiscard]] DPTK_INLINE virtual bool ended();

    /// Null while the operation runs and when it went well. Does not block.
    virtual std::exception_ptr error() = 0;

    /// The same, where nobody has asked for it by error() yet.
    virtual std::exception_ptr unseen_error() = 0;

    /// Of a recv that has ended: the rank whose message it was. -1 for all other operations.
    [[nodiscard]] virtual int source_rank() const { return -1; }
};

/// Copies refer to one operation. A Work may be dropped: its communicator completes the operation, at the
/// latest at barrier() or when it closes. The buffers must live until then, or until wait() has returned.
class Work {
  public:
    /// An operation that has ended well.
    Work() = default;

    /// An operation whose state is shared with its communicator.
    explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

    /// Blocks until the operation has ended; throws what it failed with.
    void wait();

    /// Blocks for at most `timeout`. Returns whether the operation has ended; throws what it failed with.
    /// A timeout changes nothing: the operation goes on, and wait() may be called again.
    [[nodiscard]] bool wait(std::chrono::nanoseconds timeout);

    /// What `stream` does from now on finds the result. Does not block over NCCL; otherwise until the
    /// operation has ended. Throws what is known by then to have failed.
    void wait(StreamRef stream);

    /// Whether the operation has ended, well or badly. Does not block.
    [[nodiscard]] bool done();

    /// What the operation failed with; null while it runs and when it went well. Does not block.
    [[nodiscard]] std::exception_ptr error() { return state_ ? state_->error() : nullptr; }

    /// Waits, and returns the rank whose message a recv_async has received; -1 for all other operations.
    int source_rank();

    /// For those who make one Work of several. Null where the operation has ended well from the start.
    [[nodiscard]] const std::shared_ptr<WorkState>& state() const noexcept { return state_; }

  private:
    std::shared_ptr<WorkState> state_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/work.ipp"
#endif
