/// Runs the collectives of one channel in the order in which they were started, on one background thread that
/// is made at the first of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "dptk/comm/work.hpp"
#include "dptk/comm/work_error.hpp"
#include "dptk/control/quiet_thread.hpp"
#include "dptk/core/error.hpp"

namespace dptk::detail {

/// An operation that a WorkQueue runs.
class QueuedWork final : public WorkState {
  public:
    /// Returns what source_rank() shall be.
    using Operation = std::function<int()>;

    explicit QueuedWork(Operation operation) : operation_(std::move(operation)) {}

    bool wait(std::chrono::nanoseconds timeout) override {
        std::unique_lock lock(mutex_);
        const auto ended = [this] { return ended_; };
        if (timeout == std::chrono::nanoseconds::max()) {
            ended_changed_.wait(lock, ended);
            return true;
        }
        return ended_changed_.wait_for(lock, timeout, ended);
    }

    std::exception_ptr error() override {
        const std::lock_guard lock(mutex_);
        return error_.see();
    }

    void run() noexcept {
        std::exception_ptr error;
        try {
            source_rank_ = operation_();
        } catch (...) {
            error = std::current_exception();
        }
        end(error);
    }

    [[nodiscard]] int source_rank() const override { return source_rank_; }

    void end(std::exception_ptr error) noexcept {
        operation_ = nullptr;  // lets go of what the operation kept alive
        const std::lock_guard lock(mutex_);
        error_.set(std::move(error));
        ended_ = true;
        ended_changed_.notify_all();
    }

    std::exception_ptr unseen_error() override {
        const std::lock_guard lock(mutex_);
        return error_.unseen();
    }

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

    ~WorkQueue() { finish(); }

    std::shared_ptr<QueuedWork> start(QueuedWork::Operation operation) {
        auto work = std::make_shared<QueuedWork>(std::move(operation));
        if (!thread_.joinable()) thread_ = start_quiet_thread([shared = shared_] { serve(*shared); });
        {
            const std::lock_guard lock(shared_->mutex);
            shared_->waiting.push_back(work);
        }
        shared_->changed.notify_all();
        return work;
    }

    /// Whether nothing is waiting or running, so that the caller may run an operation itself.
    [[nodiscard]] bool idle() const {
        if (!thread_.joinable()) return true;
        const std::lock_guard lock(shared_->mutex);
        return shared_->waiting.empty() && !shared_->running;
    }

    /// Throws the first error of an operation whose Work was dropped, once.
    void rethrow_dropped_error() {
        std::vector<std::shared_ptr<QueuedWork>> dropped;
        {
            const std::lock_guard lock(shared_->mutex);
            std::erase_if(shared_->failed, [&](const std::shared_ptr<QueuedWork>& work) {
                if (work.use_count() > 1) return false;
                dropped.push_back(work);
                return true;
            });
        }
        for (const auto& work : dropped) {
            if (const std::exception_ptr error = work->unseen_error()) std::rethrow_exception(error);
        }
    }

    /// Runs what is waiting to its end, then ends the thread. Blocks.
    void finish() {
        if (!thread_.joinable()) return;
        {
            const std::lock_guard lock(shared_->mutex);
            shared_->closing = true;
        }
        shared_->changed.notify_all();
        thread_.join();
    }

    /// Ends what is waiting with an error, and does not wait for what is running.
    void abandon() {
        if (!thread_.joinable()) return;
        std::deque<std::shared_ptr<QueuedWork>> dropped;
        {
            const std::lock_guard lock(shared_->mutex);
            shared_->closing = true;
            dropped.swap(shared_->waiting);
        }
        shared_->changed.notify_all();
        for (const auto& work : dropped) {
            work->end(
                std::make_exception_ptr(PeerLostError("the group closed before the operation could start")));
        }
        thread_.detach();
    }

  private:
    struct Shared {
        std::mutex mutex;
        std::condition_variable changed;
        std::deque<std::shared_ptr<QueuedWork>> waiting;
        std::vector<std::shared_ptr<QueuedWork>> failed;
        bool running = false;
        bool closing = false;
    };

    static void serve(Shared& shared) {
        std::unique_lock lock(shared.mutex);
        while (true) {
            shared.changed.wait(lock, [&] { return !shared.waiting.empty() || shared.closing; });
            if (shared.waiting.empty()) return;
            const std::shared_ptr<QueuedWork> work = std::move(shared.waiting.front());
            shared.waiting.pop_front();
            shared.running = true;
            lock.unlock();
            work->run();
            lock.lock();
            shared.running = false;
            if (work->unseen_error()) shared.failed.push_back(work);
        }
    }

    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    std::thread thread_;
};

}  // namespace dptk::detail
