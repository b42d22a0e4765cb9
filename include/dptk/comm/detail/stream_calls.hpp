/// The calls of one channel that a GPU carries out: kept, with what they use, until they have ended, whether
/// or not somebody keeps their Work. While there are any, the channel's CallTracker is in the last of them,
/// so that deadlines hold for what the host does not wait for.
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
    [[nodiscard]] static std::shared_ptr<StreamCalls> make(std::shared_ptr<CallTracker> activity);

    /// Calls enqueue(), which hands a call to the GPU and returns its work. `keep_alive` lives until that has
    /// ended, and the next call, or finish(), comes.
    template <class Enqueue>
    std::shared_ptr<WorkState> add(const PackedCall& call, std::shared_ptr<const void> keep_alive,
                                   Enqueue&& enqueue) {
        look();
        let_go();
        {
            const std::lock_guard lock(mutex_);
            if (under_way_++ > 0) tracker_->end();
            tracker_->begin(call.words());
        }
        try {
            std::shared_ptr<WorkState> work = enqueue();
            const std::lock_guard lock(mutex_);
            calls_.push_back({work, std::move(keep_alive)});
            return work;
        } catch (...) {
            const std::lock_guard lock(mutex_);
            one_ended();
            throw;
        }
    }

    /// Blocks until all have ended.
    void finish();

    /// Takes those out that have ended; those behind one that has not stay until it has. What they have used
    /// is not let go of here: the end of a GPU's memory waits for the GPU.
    DPTK_INLINE void look() noexcept override;

    [[nodiscard]] DPTK_INLINE std::chrono::milliseconds interval() const noexcept override;

  private:
    struct Call {
        std::shared_ptr<WorkState> work;
        std::shared_ptr<const void> keep_alive;
    };

    explicit StreamCalls(std::shared_ptr<CallTracker> activity);

    void one_ended() noexcept;

    /// Of what calls have used that have ended. May block.
    void let_go();

    [[nodiscard]] std::shared_ptr<WorkState> last_call();

    std::shared_ptr<CallTracker> tracker_;
    std::mutex mutex_;
    std::deque<Call> calls_;
    std::deque<Call> ended_;
    int under_way_ = 0;  // one more than calls_ while one is being handed over
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/stream_calls.ipp"
#endif
