/// PrefetchQueue, which prepares numbered pieces of work in worker threads and returns them in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Fills a ring of slots: piece number n goes into slot n % slots. Several workers fill slots at a time. The
/// consumer takes the pieces in order, and holds at most one slot at a time.
class PrefetchQueue {
  public:
    /// Fills slot `slot` with piece `piece`. Called on a worker thread, or on the consumer's thread if there
    /// are no workers. Should return or throw early once is_canceled() is true.
    using Fill = std::function<void(std::size_t piece, std::size_t slot)>;

    /// Starts the threads. `slots` must be at least 1. Throws BackendError if the system cannot start a
    /// thread.
    PrefetchQueue(std::size_t workers, std::size_t slots, Fill fill);

    /// Cancels the pass and ends the threads. Waits for calls of `fill` to return.
    ~PrefetchQueue();

    PrefetchQueue(const PrefetchQueue&) = delete;
    PrefetchQueue& operator=(const PrefetchQueue&) = delete;

    /// Begins a pass over the pieces from `first` to `last` - 1. No other pass may be under way.
    void begin(std::size_t first, std::size_t last);

    /// Returns the slot of the next piece, which the consumer holds until it calls next() again. Blocks
    /// until the slot is filled. Rethrows the exception of the call of `fill` that filled it, which cancels
    /// the pass. There must be a next piece.
    [[nodiscard]] std::size_t next();

    /// Ends the pass early. Waits for calls of `fill` to return, and drops their pieces.
    void cancel() noexcept;

    /// Returns whether calls of `fill` should return early.
    [[nodiscard]] bool is_canceled() const noexcept { return is_canceled_; }

  private:
    struct Slot {
        bool is_filled = false;
        std::exception_ptr problem;
    };

    void work();

    void fill(std::size_t piece, Slot& slot) noexcept;

    void end_threads() noexcept;

    Fill fill_;
    std::vector<Slot> slots_;
    std::mutex mutex_;
    std::condition_variable can_fill_;  // a slot has become free, or the threads must end
    std::condition_variable has_filled_;
    std::size_t to_fill_ = 0;     // the next piece that a worker takes
    std::size_t to_take_ = 0;     // the next piece of the consumer
    std::size_t last_ = 0;        // the end of the pass
    std::size_t free_until_ = 0;  // pieces before this one have a free slot, or are in their slot
    std::size_t filling_ = 0;     // calls of fill_ on worker threads
    std::atomic<bool> is_canceled_ = false;
    bool is_ending_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/detail/prefetch_queue.ipp"
#endif
