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
            : program_(program.is_called_by_program() ? &program : nullptr) {
            if (program_ == nullptr) [[unlikely]]
                return;
            before_ = program_->channel_.load(std::memory_order_relaxed);
            program_->channel_.store(&channel, std::memory_order_release);
        }
        ~Scope() {
            if (program_ != nullptr) [[likely]]
                program_->channel_.store(before_, std::memory_order_release);
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
    /// Returns false on dptk's own threads. Notes whether the program calls from several threads. Costs a
    /// comparison on the thread that made the first call.
    [[nodiscard]] bool is_called_by_program() noexcept {
        const void* const self = &is_background_thread;
        const void* first = first_thread_.load(std::memory_order_relaxed);
        if (first == self) [[likely]]
            return true;
        if (is_background_thread) return false;
        if (first != nullptr || !first_thread_.compare_exchange_strong(first, self))
            has_several_threads_ = true;
        return true;
    }

    std::atomic<const CallTracker*> channel_ = nullptr;
    /// The thread of the program's first call, by the address of its own is_background_thread.
    std::atomic<const void*> first_thread_ = nullptr;
    std::atomic<bool> has_several_threads_ = false;
};

}  // namespace DPTK_NAMESPACE::detail
