/// A queue that runs the operations of one channel in the order in which they were started, on a background
/// thread that is created for the first operation.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dptk/comm/detail/work_error.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// An operation that a WorkQueue runs.
class QueuedWork final : public WorkState {
  public:
    /// The function returns the value for source_rank().
    using Operation = std::function<int()>;

    explicit QueuedWork(Operation operation);

    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    DPTK_INLINE std::exception_ptr error() override;

    void run() noexcept;

    [[nodiscard]] int source_rank() const override { return source_rank_; }

    void end(std::exception_ptr error) noexcept;

    DPTK_INLINE std::exception_ptr unreported_error() override;

  private:
    Operation operation_;
    int source_rank_ = -1;
    std::mutex mutex_;
    std::condition_variable ended_changed_;
    bool ended_ = false;
    WorkError error_;
};

class WorkQueue {
  public:
    WorkQueue() = default;
    WorkQueue(const WorkQueue&) = delete;
    WorkQueue& operator=(const WorkQueue&) = delete;

    ~WorkQueue();

    std::shared_ptr<QueuedWork> start(QueuedWork::Operation operation);

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
    struct Shared {
        std::mutex mutex;
        std::condition_variable changed;
        std::deque<std::shared_ptr<QueuedWork>> waiting;
        std::vector<std::shared_ptr<QueuedWork>> failed;
        bool running = false;
        bool closing = false;
    };

    static void serve(Shared& shared);

    [[nodiscard]] bool has_no_work() const;

    ForkGuard fork_guard_;
    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    std::thread thread_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/work_queue.ipp"
#endif
