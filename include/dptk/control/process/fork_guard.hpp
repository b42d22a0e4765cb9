/// Fork detection: whether an object was made before this process was forked from another one. A forked child
/// has the parent's memory, but none of its threads, and must not use its connections.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns how often this process and its ancestors were forked since the first call.
DPTK_EXPORT inline std::atomic<unsigned>& fork_count() {
    static std::atomic<unsigned> count = 0;
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { fork_count().fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(registered);
    return count;
}

/// Member of objects that a forked child must not use.
class ForkGuard {
  public:
    /// Returns whether this process was forked after the guard was made.
    [[nodiscard]] bool is_in_child() const noexcept {
        return count_->load(std::memory_order_relaxed) != made_at_;
    }

  private:
    const std::atomic<unsigned>* count_ = &fork_count();
    unsigned made_at_ = count_->load(std::memory_order_relaxed);
};

/// An object that each process makes for itself when it first needs it: a forked child must not use its
/// parent's, which may be locked by a thread, or rely on one, that does not exist in the child. Never
/// destroyed, because background threads may outlive static objects.
template <class T>
class OfThisProcess {
  public:
    [[nodiscard]] T& get() {
        Made* made = made_.load(std::memory_order_acquire);
        while (made == nullptr || made->fork_guard.is_in_child()) {
            auto own = std::make_unique<Made>();
            if (made_.compare_exchange_strong(made, own.get())) return own.release()->object;
        }
        return made->object;
    }

  private:
    struct Made {
        T object;
        ForkGuard fork_guard;
    };

    std::atomic<Made*> made_ = nullptr;
};

/// Keeps an object of the parent process alive until the end of a forked child: its destructor would use
/// threads that do not exist in the child, or connections that the parent uses.
DPTK_EXPORT inline void keep_for_ever(std::shared_ptr<void> object) {
    static std::vector<std::shared_ptr<void>>& kept = *new std::vector<std::shared_ptr<void>>;
    kept.push_back(std::move(object));
}

}  // namespace DPTK_NAMESPACE::detail
