/// Calls of one engine that execute on a GPU stream. The calls and the memory that they use are kept alive
/// until the calls have ended, even if the caller drops their Work. While calls are in flight, the engine's
/// CallTracker shows the last call as active, so that timeouts apply to calls for which the host does not
/// wait.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/control/health/watchdog.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class StreamCalls final : public WatchdogTask {
  public:
    [[nodiscard]] static std::shared_ptr<StreamCalls> make(std::shared_ptr<CallTracker> tracker);

    /// Calls enqueue(), which enqueues a call on the GPU and returns its work. `keep_alive` is released by
    /// the first add() or finish() after the call has ended.
    template <class Enqueue>
    std::shared_ptr<WorkState> add(const PackedCall& call, std::shared_ptr<const void> keep_alive,
                                   Enqueue&& enqueue) {
        look();
        release_ended();
        {
            const std::lock_guard lock(mutex_);
            if (in_flight_++ > 0) tracker_->end();
            tracker_->begin(call.words());
        }
        try {
            std::shared_ptr<WorkState> work = enqueue();
            const std::lock_guard lock(mutex_);
            calls_.push_back({work, std::move(keep_alive)});
            return work;
        } catch (...) {
            const std::lock_guard lock(mutex_);
            count_ended();
            throw;
        }
    }

    /// Blocks until all calls have ended.
    void finish();

    /// Retires calls that have ended, in order. Does not release the memory that they used: freeing GPU
    /// memory waits for the GPU.
    DPTK_INLINE void look() noexcept override;

    [[nodiscard]] DPTK_INLINE std::chrono::milliseconds interval() const noexcept override;

  private:
    struct Call {
        std::shared_ptr<WorkState> work;
        std::shared_ptr<const void> keep_alive;
    };

    explicit StreamCalls(std::shared_ptr<CallTracker> tracker);

    void count_ended() noexcept;

    /// Releases the memory that ended calls have used. May block.
    void release_ended();

    [[nodiscard]] std::shared_ptr<WorkState> last_call();

    std::shared_ptr<CallTracker> tracker_;
    std::mutex mutex_;
    std::deque<Call> calls_;
    std::deque<Call> ended_;
    int in_flight_ = 0;  // one more than calls_.size() while a call is being enqueued
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/engine/stream_calls.ipp"
#endif
