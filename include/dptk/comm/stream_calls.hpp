/// The calls of one channel that a GPU carries out: kept, with what they use, until they have ended, whether
/// or not somebody keeps their Work. While there are any, the channel's Activity is in the last of them, so
/// that deadlines hold for what the host does not wait for.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/activity.hpp"
#include "dptk/control/watchdog.hpp"

namespace dptk::detail {

class StreamCalls final : public Watched {
  public:
    [[nodiscard]] static std::shared_ptr<StreamCalls> make(std::shared_ptr<Activity> activity) {
        std::shared_ptr<StreamCalls> calls(new StreamCalls(std::move(activity)));
        Watchdog::get().watch(calls);
        return calls;
    }

    /// Calls enqueue(), which hands a call to the GPU and returns its work. `keep_alive` lives until that has
    /// ended, and the next call, or finish(), comes.
    template <class Enqueue>
    std::shared_ptr<WorkState> add(const PackedCall& call, std::shared_ptr<const void> keep_alive,
                                   Enqueue&& enqueue) {
        look();
        let_go();
        {
            const std::lock_guard lock(mutex_);
            if (under_way_++ > 0) activity_->end();
            activity_->begin(call.words());
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
    void finish() {
        while (const std::shared_ptr<WorkState> last = last_call()) {
            static_cast<void>(last->wait(std::chrono::nanoseconds::max()));
            look();
        }
        let_go();
    }

    /// Takes those out that have ended; those behind one that has not stay until it has. What they have used
    /// is not let go of here: the end of a GPU's memory waits for the GPU.
    void look() noexcept override {
        const std::lock_guard lock(mutex_);
        while (!calls_.empty() && calls_.front().work->ended()) {
            ended_.push_back(std::move(calls_.front()));
            calls_.pop_front();
            one_ended();
        }
    }

    [[nodiscard]] std::chrono::milliseconds interval() const noexcept override {
        return std::chrono::milliseconds(100);
    }

  private:
    struct Call {
        std::shared_ptr<WorkState> work;
        std::shared_ptr<const void> keep_alive;
    };

    explicit StreamCalls(std::shared_ptr<Activity> activity) : activity_(std::move(activity)) {}

    void one_ended() noexcept {
        if (--under_way_ == 0) activity_->end();
    }

    /// Of what calls have used that have ended. May block.
    void let_go() {
        std::deque<Call> ended;
        const std::lock_guard lock(mutex_);
        std::swap(ended, ended_);
    }

    [[nodiscard]] std::shared_ptr<WorkState> last_call() {
        const std::lock_guard lock(mutex_);
        return calls_.empty() ? nullptr : calls_.back().work;
    }

    std::shared_ptr<Activity> activity_;
    std::mutex mutex_;
    std::deque<Call> calls_;
    std::deque<Call> ended_;
    int under_way_ = 0;  // one more than calls_ while one is being handed over
};

}  // namespace dptk::detail
