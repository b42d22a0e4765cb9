#pragma once

#include "dptk/data/detail/prefetch_queue.hpp"

#include <utility>

#include "dptk/control/process/background_thread.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE PrefetchQueue::PrefetchQueue(std::size_t workers, std::size_t slots, Fill fill)
    : fill_(std::move(fill)), slots_(slots) {
    try {
        for (std::size_t i = 0; i < workers; ++i)
            threads_.push_back(start_background_thread([this] { work(); }));
    } catch (...) {
        end_threads();
        throw;
    }
}

DPTK_INLINE PrefetchQueue::~PrefetchQueue() {
    cancel();
    end_threads();
}

DPTK_INLINE void PrefetchQueue::begin(std::size_t first, std::size_t last) {
    const std::lock_guard lock(mutex_);
    is_canceled_ = false;
    to_fill_ = to_take_ = first;
    last_ = last;
    free_until_ = first + slots_.size();
    for (Slot& slot : slots_) slot = {};
    can_fill_.notify_all();
}

DPTK_INLINE std::size_t PrefetchQueue::next() {
    std::unique_lock lock(mutex_);
    const std::size_t piece = to_take_++;
    const std::size_t index = piece % slots_.size();
    Slot& slot = slots_[index];
    if (threads_.empty()) {
        slot = {};
        lock.unlock();
        this->fill(piece, slot);
        lock.lock();
    } else {
        free_until_ = piece + slots_.size();  // the consumer no longer holds the slot of the piece before
        can_fill_.notify_one();
        has_filled_.wait(lock, [&] { return slot.is_filled; });
    }
    slot.is_filled = false;
    if (!slot.problem) return index;
    const std::exception_ptr problem = std::exchange(slot.problem, nullptr);
    lock.unlock();
    cancel();
    std::rethrow_exception(problem);
}

DPTK_INLINE void PrefetchQueue::cancel() noexcept {
    std::unique_lock lock(mutex_);
    is_canceled_ = true;
    last_ = to_fill_;
    has_filled_.wait(lock, [&] { return filling_ == 0; });
}

DPTK_INLINE void PrefetchQueue::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        can_fill_.wait(lock, [&] { return is_ending_ || (to_fill_ < last_ && to_fill_ < free_until_); });
        if (is_ending_) return;
        const std::size_t piece = to_fill_++;
        Slot& slot = slots_[piece % slots_.size()];
        ++filling_;
        lock.unlock();
        this->fill(piece, slot);
        lock.lock();
        --filling_;
        slot.is_filled = true;
        has_filled_.notify_all();
    }
}

DPTK_INLINE void PrefetchQueue::fill(std::size_t piece, Slot& slot) noexcept {
    try {
        fill_(piece, piece % slots_.size());
    } catch (...) {
        slot.problem = std::current_exception();
    }
}

DPTK_INLINE void PrefetchQueue::end_threads() noexcept {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    can_fill_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

}  // namespace DPTK_NAMESPACE::detail
