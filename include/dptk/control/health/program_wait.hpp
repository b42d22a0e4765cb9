/// Where the program of a rank waits: in which channel's call, so that ranks that wait for each other in
/// different groups can be found.
#pragma once

#include <atomic>

#include "dptk/control/health/call_tracker.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/thread_kind.hpp"

namespace DPTK_NAMESPACE::detail {

/// A wait in one channel excludes calls on other channels only if all calls of the program come from one
/// thread. Once a second thread has made a call, channel() returns null.
class ProgramWait {
  public:
    /// Records, as long as the scope exists, that the program waits in a channel. Does nothing on dptk's own
    /// threads.
    class Scope {
      public:
        Scope(ProgramWait& program, const CallTracker& channel) noexcept
            : program_(is_background_thread ? nullptr : &program) {
            if (program_ == nullptr) return;
            program_->note_thread();
            before_ = program_->channel_.load(std::memory_order_relaxed);
            program_->channel_.store(&channel, std::memory_order_release);
        }
        ~Scope() {
            if (program_ != nullptr) program_->channel_.store(before_, std::memory_order_release);
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        ProgramWait* program_;
        const CallTracker* before_ = nullptr;
    };

    /// Returns the channel in which the program waits, or null if it waits in none, or calls from several
    /// threads. Only for comparisons: the channel may no longer exist.
    [[nodiscard]] const CallTracker* channel() const noexcept {
        return has_several_threads_ ? nullptr : channel_.load(std::memory_order_acquire);
    }

  private:
    void note_thread() noexcept {
        static thread_local const char identity = 0;
        const void* first = nullptr;
        if (thread_.load(std::memory_order_relaxed) == &identity) return;
        if (!thread_.compare_exchange_strong(first, &identity)) has_several_threads_ = true;
    }

    std::atomic<const CallTracker*> channel_ = nullptr;
    std::atomic<const void*> thread_ = nullptr;
    std::atomic<bool> has_several_threads_ = false;
};

}  // namespace DPTK_NAMESPACE::detail
