/// A queue that runs the operations of one engine in the order in which they were started, on a background
/// thread that is created for the first operation.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "dptk/comm/detail/block_pool.hpp"
#include "dptk/comm/detail/work_error.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// An operation that a WorkQueue runs.
class QueuedWork : public WorkState {
  public:
    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    DPTK_INLINE std::exception_ptr error() override;

    void run() noexcept;

    [[nodiscard]] int source_rank() const override { return source_rank_; }

    void end(std::exception_ptr error) noexcept;

    DPTK_INLINE std::exception_ptr unreported_error() override;

  protected:
    /// Carries out the operation, and returns the value for source_rank().
    virtual int carry_out() = 0;

    /// Destroys the operation, and releases what it kept alive.
    virtual void drop() noexcept = 0;

  private:
    int source_rank_ = -1;
    std::mutex mutex_;
    std::condition_variable ended_changed_;
    bool ended_ = false;
    WorkError error_;
};

/// An operation that is a function object.
template <class Operation>
class QueuedOperation final : public QueuedWork {
  public:
    explicit QueuedOperation(Operation operation) : operation_(std::move(operation)) {}

  private:
    int carry_out() override { return (*operation_)(); }
    void drop() noexcept override { operation_.reset(); }

    std::optional<Operation> operation_;
};

/// Returns the operation, which has not started. `operation` returns the value for source_rank().
template <class Operation>
[[nodiscard]] std::shared_ptr<QueuedWork> make_operation(Operation operation) {
    return make_pooled<QueuedOperation<Operation>>(std::move(operation));
}

class WorkQueue {
  public:
    WorkQueue() = default;
    WorkQueue(const WorkQueue&) = delete;
    WorkQueue& operator=(const WorkQueue&) = delete;

    ~WorkQueue();

    template <class Operation>
    std::shared_ptr<QueuedWork> start(Operation operation) {
        std::shared_ptr<QueuedWork> work = make_operation(std::move(operation));
        add(work);
        return work;
    }

    /// Returns whether no operation is queued or running. If so, the caller may run an operation itself.
    [[nodiscard]] bool idle() const { return !thread_.joinable() || has_no_work(); }

    /// Throws the first error among the failed operations whose Work was dropped, and forgets all of these
    /// operations.
    void rethrow_dropped_error();

    /// Runs all queued operations, then ends the thread. Blocks.
    void finish();

    /// Ends queued operations with an error, and does not wait for the operation that is running.
    void abandon();

    /// Leaks the thread, in a forked child, in which it does not exist.
    void leak() noexcept;

  private:
    using Waiting = std::list<std::shared_ptr<QueuedWork>, PoolAllocator<std::shared_ptr<QueuedWork>>>;

    struct Shared {
        std::mutex mutex;
        std::condition_variable changed;
        Waiting waiting;
        std::vector<std::shared_ptr<QueuedWork>> failed;
        bool running = false;
        bool closing = false;
    };

    void add(std::shared_ptr<QueuedWork> work);

    static void serve(Shared& shared);

    [[nodiscard]] bool has_no_work() const;

    ForkGuard fork_guard_;
    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    std::thread thread_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/engine/work_queue.ipp"
#endif
