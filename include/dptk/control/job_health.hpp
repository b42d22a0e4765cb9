/// Whether the ranks of a job can still communicate and, if not, the first cause. One object is shared by a
/// group and everything made from it: all thread ranks of a launch, or all groups of an MPI process.
/// Whoever waits for other ranks subscribes, so that a failure wakes it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/error.hpp"

namespace dptk {

/// Something with waiting threads inside, which look at the JobHealth again when woken.
class Wakeable {
  public:
    virtual ~Wakeable() = default;
    virtual void wake() noexcept = 0;
};

class JobHealth {
  public:
    /// Marks the job as broken and wakes all who wait. The first cause stays.
    void fail(std::string cause) {
        std::vector<std::weak_ptr<Wakeable>> subscribers;
        {
            const std::lock_guard lock(mutex_);
            if (failed_) return;
            cause_ = std::move(cause);
            failed_ = true;
            subscribers.swap(subscribers_);
        }
        for (const auto& subscriber : subscribers) {
            if (const auto alive = subscriber.lock()) alive->wake();
        }
    }

    [[nodiscard]] bool failed() const noexcept { return failed_; }

    /// The first cause; empty while all is well.
    [[nodiscard]] std::string cause() const {
        const std::lock_guard lock(mutex_);
        return cause_;
    }

    /// Throws PeerLostError with the first cause once the job is broken.
    void check() const {
        if (failed()) throw PeerLostError("the job is broken: " + cause());
    }

    /// `subscriber` will be woken by a failure; if that has happened already, at once.
    void subscribe(const std::shared_ptr<Wakeable>& subscriber) {
        {
            const std::lock_guard lock(mutex_);
            if (!failed_) {
                std::erase_if(subscribers_, [](const auto& other) { return other.expired(); });
                subscribers_.push_back(subscriber);
                return;
            }
        }
        subscriber->wake();
    }

  private:
    mutable std::mutex mutex_;
    std::atomic<bool> failed_ = false;
    std::string cause_;
    std::vector<std::weak_ptr<Wakeable>> subscribers_;
};

}  // namespace dptk
